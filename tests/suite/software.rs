//! Real software with the library preloaded: what it prints and writes is the same as without.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jeprobe_tests::target::find;
use jeprobe_tests::{Ended, Run, TempDir, artefact, compile, skip};

const LONG: Duration = Duration::from_mins(5);

/// Runs the same description without the library and with it; both succeed and print the same.
fn same_output(describe: impl Fn(Run) -> Run, program: &Path) -> Ended {
    let without = describe(Run::new(program)).limit(LONG).finish().ok();
    let with = describe(Run::preloaded(program)).limit(LONG).finish().ok();
    assert_eq!(with.stdout, without.stdout, "output of {}", program.display());
    assert_eq!(with.stderr, without.stderr, "messages of {}", program.display());
    assert!(!with.stdout.is_empty(), "{with}");
    with
}

/// The interpreter itself, not a launcher script, with its own test suite installed.
fn python() -> Option<PathBuf> {
    let probe = "import sys, test.test_json, test.test_re; print(sys.executable)";
    let ended = Run::new(find("python3")?).args(["-c", probe]).finish();
    ended.status.success().then(|| PathBuf::from(ended.stdout.trim()))
}

const PYTHON_TESTS: &[&str] = &[
    "test_json",
    "test_list",
    "test_dict",
    "test_re",
    "test_set",
    "test_bytes",
    "test_sort",
    "test_thread",
    "test_gc",
    "test_memoryview",
    "test_deque",
    "test_array",
];

#[test]
fn python_runs_part_of_its_own_tests() {
    let Some(python) = python() else { skip!("no python3 with its test package") };
    let directory = TempDir::new("python");
    for (name, value) in [("PYTHONMALLOC", "pymalloc"), ("PYTHONMALLOC", "malloc")] {
        let ended = Run::preloaded(&python)
            .args(["-m", "test"])
            .args(PYTHON_TESTS)
            .env(name, value)
            .dir(directory.path())
            .limit(LONG)
            .finish()
            .ok();
        assert!(ended.stdout.contains("SUCCESS"), "{ended}");
        assert!(ended.stdout.contains(&format!("All {} tests OK", PYTHON_TESTS.len())), "{ended}");
    }
}

#[test]
fn python_computes_the_same() {
    let Some(python) = find("python3") else { skip!("no python3") };
    let script = r"
import json, hashlib, random, re, threading, zlib
random.seed(5)
rows = [{'id': i, 'name': 'n%d' % random.randrange(10**9), 'tags': [str(j) for j in range(i % 9)]} for i in range(30000)]
text = json.dumps(rows)
assert json.loads(text) == rows
words = re.findall(r'n\d+', text)
results = {}
def work(k):
    results[k] = zlib.crc32(zlib.compress(text[k::8].encode()))
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(hashlib.sha256(''.join(sorted(words)).encode()).hexdigest(), sorted(results.items()))
";
    same_output(|run| run.args(["-c", script]).env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "3"), &python);
}

/// PHP loads its extensions with `RTLD_DEEPBIND`, and they free what it allocated.
#[test]
fn php_with_extensions_computes_the_same() {
    let Some(php) = find("php") else { skip!("no php") };
    let script = r#"
$rows = [];
for ($i = 0; $i < 40000; $i++) { $rows["key$i"] = [$i, str_repeat(chr(97 + $i % 26), $i % 100), ['n' => $i * 7]]; }
$words = 0;
foreach ($rows as $key => $row) { $words += count(explode('1', $key . $row[1])); }
preg_match_all('/k?y(\d+)7/', implode(' ', array_keys($rows)), $found);
$text = json_encode($rows);
assert(json_decode($text, true) == $rows);
$loaded = get_loaded_extensions();
sort($loaded);
echo $words, ' ', count($found[1]), ' ', md5(serialize($rows)), ' ', implode(',', $loaded), "\n";
"#;
    for zend in ["0", "1"] {
        same_output(|run| run.args(["-d", "memory_limit=-1", "-r", script]).env("USE_ZEND_ALLOC", zend), &php);
    }
}

#[test]
fn sqlite_on_a_million_rows() {
    let Some(sqlite) = find("sqlite3") else { skip!("no sqlite3") };
    let script = "
create table t(id integer primary key, name text, value real, bucket int);
insert into t with recursive n(i) as (select 1 union all select i + 1 from n where i < 1000000)
  select i, printf('name-%08d', i * 7919 % 1000003), i * 0.25, i % 997 from n;
create index by_name on t(name);
select count(*), sum(id), total(value) from t;
select bucket, count(*), sum(length(name)), min(name), max(name) from t group by bucket order by 3 desc, 1 limit 10;
select a.name, b.bucket from t a join t b on b.name = printf('name-%08d', a.id) where a.bucket = 5 order by a.name limit 20;
delete from t where bucket % 3 = 0;
select count(*), sum(id % 1013 * bucket) from t;
select count(distinct substr(name, 6, 4)), group_concat(distinct bucket % 10) from t;
pragma integrity_check;
";
    let ended = same_output(|run| run.arg(":memory:").input(script), &sqlite);
    assert!(ended.stdout.starts_with("1000000|500000500000|"), "{ended}");
    assert!(ended.stdout.trim_end().ends_with("ok"), "{ended}");
}

/// A translation unit that keeps the compiler's memory busy: templates over templates and many functions.
fn large_cxx() -> String {
    let mut text = String::from(
        "#include <algorithm>\n#include <functional>\n#include <map>\n#include <string>\n#include <tuple>\n#include <variant>\n#include <vector>\n\
         template <int N> struct Tower { Tower<N - 1> below; std::map<int, std::vector<std::tuple<int, std::string>>> at; \
         int depth() const { return 1 + below.depth() + (int)at.size(); } };\n\
         template <> struct Tower<0> { int depth() const { return 0; } };\n",
    );
    for i in 0..25 {
        let _ = writeln!(
            text,
            "struct S{i} {{ int a[{0}]; std::variant<int, std::string, std::vector<S{i}*>> v; Tower<{1}> t; }};\n\
             int f{i}(std::vector<S{i}> &all, std::map<std::string, std::function<int(int)>> &m) {{\n\
               std::sort(all.begin(), all.end(), [](const S{i} &x, const S{i} &y) {{ return x.a[0] + {i} < y.a[0]; }});\n\
               int sum = 0; for (auto &s : all) sum += s.t.depth() + m[\"k{i}\"](s.a[0]);\n\
               return std::visit([](auto &x) {{ return (int)sizeof x; }}, all[0].v) + sum; }}",
            i + 1,
            i % 12 + 1
        );
    }
    text
}

fn large_c() -> String {
    let mut text = String::from("#include <stdio.h>\n#include <string.h>\n");
    for i in 0..600 {
        let _ = writeln!(
            text,
            "static int g{i}(int n, char *s) {{ int t = {i}; for (int k = 0; k < n; k++) {{ t = t * {0} + s[k % 7]; \
             if (t & {1}) t ^= (int)strlen(s) << (k & 3); switch (t % 5) {{ case 0: t += n; break; case 1: t -= {i}; break; \
             default: t ^= k; }} }} return t; }}\n__attribute__((noinline)) int h{i}(char *s) {{ return g{i}(s[0], s) + {2}; }}",
            i * 31 % 257 + 1,
            1 << (i % 20),
            if i == 0 { "0".to_owned() } else { format!("h{}(s + 1)", i - 1) },
        );
    }
    text
}

#[test]
fn compilers_write_the_same_objects() {
    let directory = TempDir::new("compilers");
    for (compiler, source, text) in [("gcc", "large.c", large_c()), ("g++", "large.cc", large_cxx())] {
        let Some(compiler) = find(compiler) else { skip!("no {compiler}") };
        fs::write(directory.join(source), &text).expect("the temporary directory is writable");
        let mut objects = Vec::new();
        for preload in [false, true] {
            let run = if preload { Run::preloaded(&compiler) } else { Run::new(&compiler) };
            let object = directory.join("object.o");
            let standard = if text.contains("#include <vector>") { "-std=gnu++20" } else { "-std=gnu17" };
            run.args([standard, "-O2", "-w", "-frandom-seed=1", "-c", source, "-o", "object.o"])
                .dir(directory.path())
                .limit(LONG)
                .finish()
                .ok()
                .discard();
            objects.push(fs::read(&object).expect("the compiler wrote an object"));
            fs::remove_file(object).expect("just read");
        }
        assert!(objects[0].len() > 100_000, "{source}: {} bytes", objects[0].len());
        assert!(objects[0] == objects[1], "{source}: the objects differ");
    }
}

#[test]
fn git_clones_packs_and_checks_this_repository() {
    let Some(git) = find("git") else { skip!("no git") };
    let common = Run::new(&git).args(["rev-parse", "--path-format=absolute", "--git-common-dir"]).dir(artefact::root());
    let common = common.finish();
    if !common.status.success() {
        skip!("the workspace is not a git repository");
    }
    let source = format!("file://{}", common.stdout.trim());
    let directory = TempDir::new("git");
    let session = |preload: bool, name: &str| {
        let at = |command: &[&str], inside: bool| {
            let run = if preload { Run::preloaded(&git) } else { Run::new(&git) };
            let place = if inside { directory.join(name) } else { directory.path().to_path_buf() };
            let run = run.args(["-c", "protocol.file.allow=always", "-c", "safe.directory=*", "-c", "gc.auto=0"]);
            let ended = run.args(command).dir(place).limit(LONG).finish();
            ended.ok().stdout
        };
        at(&["clone", "--quiet", "--no-checkout", &source, name], false);
        at(&["repack", "-a", "-d", "-f", "--quiet", "--depth=50", "--window=50"], true);
        at(&["gc", "--aggressive", "--prune=now", "--quiet"], true);
        at(&["fsck", "--full", "--strict"], true);
        at(&["checkout", "--quiet", "HEAD"], true);
        [
            at(&["rev-parse", "HEAD"], true),
            at(&["log", "--stat", "-p", "--format=%H %s"], true),
            at(&["ls-tree", "-r", "HEAD"], true),
            at(&["grep", "-c", "the"], true),
            at(&["status", "--short"], true),
        ]
    };
    let without = session(false, "without");
    let with = session(true, "with");
    assert!(with == without, "git answers differently with the library");
    assert!(with[1].len() > 1000);
}

#[test]
fn node_computes_the_same() {
    let Some(node) = find("node") else { skip!("no node") };
    let script = r"
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto');
function work(seed) {
  const map = new Map(); let state = seed;
  for (let i = 0; i < 200000; i++) { state = (state * 1103515245 + 12345) % 2147483648; map.set('k' + state % 5000, Buffer.alloc(state % 300, i % 256)); }
  const all = [...map.keys()].sort().map(k => Buffer.concat([Buffer.from(k), map.get(k)]));
  return crypto.createHash('sha256').update(zlib.deflateSync(Buffer.concat(all))).digest('hex');
}
if (isMainThread) {
  const jobs = [1, 2, 3, 4].map(n => new Promise((done, fail) => { const w = new Worker(process.argv[1], { workerData: n }); w.on('message', done); w.on('error', fail); }));
  Promise.all(jobs).then(r => { console.log(r.join('\n')); console.log(work(99)); });
} else parentPort.postMessage(work(workerData));
";
    let directory = TempDir::new("node");
    fs::write(directory.join("work.js"), script).expect("the temporary directory is writable");
    same_output(|run| run.arg(directory.join("work.js")), &node);
}

#[test]
fn perl_computes_the_same() {
    let Some(perl) = find("perl") else { skip!("no perl") };
    let script = r#"
my %h; my $s = 7;
for my $i (1 .. 300000) { $s = ($s * 1103515245 + 12345) % 2147483648; push @{$h{$s % 4001}}, "v$i" x ($s % 9); }
my $sum = 0; my $text = '';
for my $k (sort { $a <=> $b } keys %h) { my $j = join ',', @{$h{$k}}; $sum = ($sum * 31 + length $j) % 1000000007; $text .= substr $j, 0, 20; }
$text =~ s/(\d+),v(\d+)/$2$1/g; my @w = sort split /v/, $text;
print "$sum ", scalar(@w), " ", unpack('%32C*', $text), " $w[100]\n";
for (1 .. 20) { my $pid = fork; if (!$pid) { my @x = map { "$_" x 50 } 1 .. 1000; exit(@x == 1000 ? 0 : 1) } waitpid $pid, 0; print $?; }
print "\n";
"#;
    same_output(|run| run.args(["-e", script]).env("PERL_HASH_SEED", "0"), &perl);
}

#[test]
fn threaded_cxx_with_exceptions() {
    same_output(|run| run, &compile::program("exceptions.cc", &[]));
}

/// A shell session in which every command runs on the library.
#[test]
fn shell_session() {
    let Some(bash) = find("bash") else { skip!("no bash") };
    let directory = TempDir::new("shell");
    let script = r#"
set -eu
export LC_ALL=C TZ=UTC
dir=$1; rm -rf "$dir"; mkdir "$dir"; cd "$dir"
seq 1 200000 > numbers
awk '{ a[$1 % 1000] += $1; s = s "" } END { for (k = 0; k < 1000; k += 97) print k, a[k] }' numbers
sort -R --random-source=numbers numbers | sort -n | tail -1
sort -t 9 -k 2 numbers | md5sum
grep -E '(1.*7|99$)' numbers | wc -l
sed -e 's/1/one/g; s/0\{2,\}/z/' numbers | sort -u | sha1sum
tr 0-9 a-j < numbers | fold -w 60 | uniq -c | head -3
split -n 7 numbers part. ; cat part.* | cmp - numbers && echo joined
mkdir -p tree/a/b/c; for f in tree/a/x tree/a/b/y tree/a/b/c/z; do head -c 30000 numbers > $f; done
find tree -type f | sort; find tree -type f -size +10k -exec wc -c {} + | tail -1
tar cf - --sort=name --mtime=@0 --owner=0 --group=0 tree | md5sum
tar czf t.tgz tree; gzip -t t.tgz; tar tzf t.tgz | sort
ls -1 tree/a; du -a --apparent-size tree | sort -k 2 | tail -2 | cut -f 2
diff -r tree tree && echo same; comm -12 <(sort numbers) <(sort -r numbers | sort) | wc -l
join <(sort numbers | head -1000) <(sort numbers | head -500) | wc -l
xargs -n 1000 echo < numbers | md5sum
paste numbers numbers | cut -f 2 | od -c | tail -2
bc <<< '2 ^ 300' 2> /dev/null || true
for i in 1 2 3 4 5 6 7 8; do (echo $i | cat > job.$i) & done; wait; cat job.*
env -i /bin/echo clean; date -d @0 +%F; expr 6 \* 7; printf '%05d\n' 42; basename /a/b.c .c; id -un; uname -s
timeout 5 true; nice true; stat -c %s numbers; file=$(mktemp); rm "$file"; readlink -f . | wc -l
"#;
    same_output(|run| run.args(["-c", script, "session"]).arg(directory.join("work")), &bash);
}
