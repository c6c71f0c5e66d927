// Zoom, moving and search in one SVG file. Wheel or + and -: zoom; drag or arrows: move; 0: whole picture;
// / or Ctrl-F: search by regular expression, Escape: end of the search. A picture that would be too small to be read as a whole
// opens where its first box is, with a line that names the keys.
(function () {
  "use strict";
  var svg = document.documentElement;
  var whole = svg.viewBox.baseVal;
  var view = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
  var first = { x: view.x, y: view.y, width: view.width, height: view.height };
  var paper = svg.querySelector(".paper");
  var drag = null;

  var READABLE = 0.3;
  var OPENED = 0.8;
  var keys = null;

  /** Begins at the first box, when the whole is too small. */
  function open() {
    var scale = Math.min(window.innerWidth / whole.width, window.innerHeight / whole.height);
    var box = svg.querySelector(".node");
    if (!(scale > 0) || scale >= READABLE || !box) { return; }
    var place = box.getBBox();
    view.width = window.innerWidth / OPENED;
    view.height = window.innerHeight / OPENED;
    view.x = place.x + place.width / 2 - view.width / 2;
    view.y = Math.min(place.y - 40, whole.y + 40);
    keys = document.createElementNS("http://www.w3.org/2000/svg", "text");
    keys.textContent = "a part of the picture is shown; drag or arrows: move, + and -: zoom, 0: whole picture, /: search";
    keys.setAttribute("fill", "#57606a");
    keys.setAttribute("stroke", "#ffffff");
    keys.setAttribute("paint-order", "stroke");
    svg.appendChild(keys);
  }

  function show() {
    svg.setAttribute("viewBox", [view.x, view.y, view.width, view.height].join(" "));
    // The paper covers what is seen, whatever the shape of the window.
    paper.setAttribute("x", view.x - 2 * view.width);
    paper.setAttribute("y", view.y - 2 * view.height);
    paper.setAttribute("width", 5 * view.width);
    paper.setAttribute("height", 5 * view.height);
    if (keys) {
      var unit = Math.max(view.width / window.innerWidth, view.height / window.innerHeight);
      keys.setAttribute("x", view.x + 10 * unit);
      keys.setAttribute("y", view.y + view.height - 10 * unit);
      keys.setAttribute("font-size", 12 * unit);
      keys.setAttribute("stroke-width", 6 * unit);
    }
  }

  function point(event) {
    var p = svg.createSVGPoint();
    p.x = event.clientX;
    p.y = event.clientY;
    return p.matrixTransform(svg.getScreenCTM().inverse());
  }

  function zoom(factor, at) {
    view.x = at.x - (at.x - view.x) * factor;
    view.y = at.y - (at.y - view.y) * factor;
    view.width *= factor;
    view.height *= factor;
    show();
  }

  function middle() {
    return { x: view.x + view.width / 2, y: view.y + view.height / 2 };
  }

  function search(pattern) {
    var regex = null;
    try { regex = pattern ? new RegExp(pattern, "i") : null; } catch (e) { return; }
    var groups = svg.querySelectorAll("[data-key]");
    for (var i = 0; i < groups.length; i++) {
      var title = groups[i].querySelector("title");
      var hit = !regex || (title && regex.test(title.textContent));
      groups[i].setAttribute("opacity", hit ? 1 : 0.15);
    }
  }

  svg.addEventListener("wheel", function (event) {
    event.preventDefault();
    zoom(Math.pow(1.0015, event.deltaY), point(event));
  }, { passive: false });
  svg.addEventListener("mousedown", function (event) { drag = point(event); event.preventDefault(); });
  svg.addEventListener("mouseup", function () { drag = null; });
  svg.addEventListener("mousemove", function (event) {
    if (!drag || !event.buttons) { return; }
    var now = point(event);
    view.x += drag.x - now.x;
    view.y += drag.y - now.y;
    show();
  });
  window.addEventListener("keydown", function (event) {
    var step = view.width / 10;
    if (event.key === "+" || event.key === "=") { zoom(0.8, middle()); }
    else if (event.key === "-") { zoom(1.25, middle()); }
    else if (event.key === "0") { view = { x: first.x, y: first.y, width: first.width, height: first.height }; show(); }
    else if (event.key === "ArrowLeft") { view.x -= step; show(); }
    else if (event.key === "ArrowRight") { view.x += step; show(); }
    else if (event.key === "ArrowUp") { view.y -= step; show(); }
    else if (event.key === "ArrowDown") { view.y += step; show(); }
    else if (event.key === "Escape") { search(""); }
    else if (event.key === "/" || (event.key === "f" && event.ctrlKey)) {
      var pattern = window.prompt("Search (regular expression)");
      if (pattern !== null) { search(pattern); }
    } else { return; }
    event.preventDefault();
  });
  open();
  show();
}());
