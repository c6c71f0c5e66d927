//! Texts that describe the command: `--help`, `--version`, and `help` of the interactive mode.
#![forbid(unsafe_code)]

/// What `--help` prints, and what stands under a usage error.
pub const USAGE: &str = "\
Usage:
  jeprof [OPTIONS] PROGRAM PROFILE...
  jeprof [OPTIONS] SYMBOLIZED_PROFILE...
  jeprof [OPTIONS] HOST:PORT[/SERVICE]...
  jeprof --symbols PROGRAM < MAPS_AND_ADDRESSES

A profile is a file, or a server: [http[s]://]HOST:PORT[/PREFIX][/SERVICE], service one of /pprof/heap,
/pprof/growth, /pprof/contention, /pprof/wall, /pprof/profile (used when none is named), /pprof/pmuprofile,
/pprof/filteredprofile, /pprof/censusprofile. NAME@N/SERVICE stands for the servers 0.NAME to N-1.NAME.
Several profiles are added up. Without an output type: interactive on a terminal, otherwise --text.

Options may be cut to what is unique; flags are switched off by --noX.

General:
  --base=FILE          subtract this profile
  --drop_negative      with --base: what would become negative is 0
  --interactive        ask for commands (help lists them)
  --seconds=N          how long a server samples CPU time (30)
  --add_lib=FILE       one more image, at the addresses it was linked for
  --lib_prefix=A,B     directories under which libraries are looked for first
  --debug-syms-by-id   look for debug files by build-id, too
  --debug              say on stderr which files are used
  --tools=LIST         accepted; nothing is run, names and lines are read from the files themselves
  --test               check the address arithmetic
  --help, --version    this text; the version

What a row is:
  --functions          a function (default)
  --lines              a source line
  --files              a source file
  --addresses          an address

Output:
  --text               table
  --cum                table sorted by the cumulative column
  --list=REGEX         source of matching functions with numbers per line
  --disasm=REGEX       instructions of matching functions with numbers
  --collapsed          one line per stack
  --callgrind          callgrind file
  --raw                names and profile in one file, readable without the program
  --symbols            names of addresses on stdin
  --dot                graph as text for dot
  --svg --pdf --ps --gif   picture of the graph on stdout
  --gv --evince --web  picture of the graph, and a viewer for it

Heap profiles:
  --inuse_space        bytes in use (default)
  --inuse_objects      objects in use
  --alloc_space        bytes ever allocated
  --alloc_objects      objects ever allocated
  --show_bytes         bytes instead of megabytes
  --thread=N           only what thread N allocated; '*': every thread on its own
  --heapcheck          mark leaves of the graph

Contention profiles:
  --total_delay        time waited (default)
  --contentions        how often
  --mean_delay         mean time waited

What is shown:
  --focus=REGEX        only stacks with a matching frame
  --ignore=REGEX       no stacks with a matching frame
  --retain=REGEX       only matching frames
  --exclude=REGEX      no matching frames

Graphs:
  --nodecount=N        at most so many nodes (80)
  --nodefraction=F     no nodes below this part of the total (0.005)
  --edgefraction=F     no edges below this part of the total (0.001)
  --maxdegree=N        at most so many edges into and out of a node (8)
  --scale=N            scale of gv (0)

Environment:
  JEPROF_TMPDIR        where fetched profiles are kept ($HOME/jeprof)
  JEPROF_COMPAT        5.3.0 (default) or 5.3.1: whose behaviour, where these versions of jemalloc differ
";

/// What `--version` prints.
pub const VERSION: &str = concat!(
    "jeprof (part of jeprobe ",
    env!("CARGO_PKG_VERSION"),
    ", does what jeprof of jemalloc 5.3.0 does)\n",
    "Licensed under MIT or Apache-2.0; without any warranty.\n",
);

/// What `help` prints in the interactive mode, on stderr.
pub const INTERACTIVE: &str = "\
Commands:
  top[N] [--cum] [-IGNORE...]      the N largest rows (10); text is the same
  list REGEX [-IGNORE...]          source of matching functions with numbers per line
  weblist REGEX [-IGNORE...]       the same as a page in the browser, with instructions
  disasm REGEX [-IGNORE...]        instructions of matching functions with numbers
  gv, web, evince [FOCUS] [-IGNORE...]   graph in a viewer
  callgrind [FILE]                 callgrind file; without FILE opened in kcachegrind
  help                             this list
  quit, end of input               leave

--lines makes rows source lines for one command. -REGEX leaves out stacks with a matching frame.
COMMAND > FILE writes what the command prints to FILE, COMMAND >> FILE puts it at its end.
";
