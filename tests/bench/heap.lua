-- Short-lived tables, strings and closures of an interpreter, beside a table that lives and is replaced bit by bit.
local rounds = 120000
local state = 12345
local function random(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state % n + 1
end

local live, sum = {}, 0
for i = 1, rounds do
  local node = { key = "k" .. random(100000), left = live[random(20000)], weight = i }
  node.cost = function(x) return x + node.weight end
  if node.left then node.left.left = nil end
  live[random(20000)] = node
  sum = sum + #node.key + node.cost(1) % 7
  if i % 1000 == 0 then
    local words = {}
    for j = 1, 200 do words[j] = string.rep(string.char(97 + random(25)), random(40)) end
    sum = sum + #table.concat(words, " ")
    table.sort(words)
  end
end
print(sum)
