/**
 * The commands that a page shows, with what they print: blocks of `console`, commands after `$ `.
 *
 * - What is shown is what a command prints on standard output or, where that is nothing, on standard error.
 * - `…` stands for anything on a line, alone on a line for any lines. Times of the day and durations
 *   of log lines may differ.
 * - `^C` as the last line: it continues until someone ends it, who has seen the lines before.
 * - A command that ends with `&` continues as well; what it prints is waited for, too.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  chmodSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join, delimiter, dirname } from 'node:path';
import tap, { type Test } from 'tap';
import { isInstalled } from '../../bench/support/tools.ts';
import { until } from '../../examples/support/until.ts';
import { blocksOf } from './markdown.ts';
import { shortDir } from './short-dir.ts';
import { freePort, portBlock } from './sockets.ts';

interface Shown {
  readonly command: string;
  readonly output: string;
  /** Whether someone ends it with INT. */
  readonly interrupted: boolean;
  /** Whether it continues while others run. */
  readonly background: boolean;
}

/** All commands of a page in order, of the blocks with this mark. A command continues until a line that begins with `$ `. */
function shownCommands(page: string, mark = ''): Shown[] {
  return blocksOf(page)
    .filter((block) => block.language === 'console' && block.mark === mark)
    .flatMap(({ text }) => text.split(/^\$ /m).slice(1))
    .map((text) => {
      // A here-document, and lines after one that ends with a backslash, belong to their command.
      const here = /^[^\n]*<<'?(\w+)'?\n[^]*?\n\1\n/.exec(text) ?? /^(?:.*\\\n)*.*\n/.exec(text);
      const [command = text] = here ?? [];
      const output = text.slice(command.length);
      return {
        command,
        output: output.replace(/^\^C\n$/m, ''),
        interrupted: /^\^C\n$/m.test(output),
        background: command.endsWith('&\n'),
      };
    });
}

/** What is never the same twice, in log lines for people and for programs. */
const VARYING = [
  /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z/g,
  /\d\d:\d\d:\d\d\.\d{3}/g,
  /(?<=\b(?:ms|retryInMs|durationMs|waitedMs)"?[=:])\d+(?:\.\d+)?/g,
];

/** A text with what varies taken out. */
export function withoutVarying(text: string): string {
  return VARYING.reduce((rest, pattern) => rest.replaceAll(pattern, '0'), text);
}

/** Whether what was printed is what the page shows; with `begins`, whether it begins so. */
export function isAsShown(printed: string, shown: string, begins = false): boolean {
  return new RegExp(`^${patternOf(shown)}${begins ? '' : '$'}`, 's').test(withoutVarying(printed));
}

/** Whether what the page shows is a part of what was printed. */
export function containsShown(printed: string, shown: string): boolean {
  return new RegExp(patternOf(shown), 's').test(withoutVarying(printed));
}

function patternOf(shown: string): string {
  const escape = (text: string): string => text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&');
  return withoutVarying(shown)
    .split('\n')
    .map((line) => (line === '…' ? '.*' : line.split('…').map(escape).join('[^\\n]*')))
    .join('\n');
}

/** What the shell itself says when a job was ended by a signal. */
const JOB_ENDED =
  /^(?:bash: line \d+: +\d+|\[\d+\][-+ ]) +(?:Terminated|Killed|Interrupt|Done) .*\n/gm;

/** A shell that does one command after another, as someone at a terminal does who reads a page. */
class Terminal {
  readonly #shell: ChildProcess;
  readonly #outputs: string;
  #count = 0;

  /** `inside`: what runs the shell, such as `unshare --net`. */
  constructor(cwd: string, env: NodeJS.ProcessEnv, inside: readonly string[] = []) {
    this.#outputs = join(cwd, '.outputs');
    mkdirSync(this.#outputs);
    const [file, ...args] = [...inside, 'bash', '--noprofile', '--norc', '-s'];
    this.#shell = spawn(file, args, { cwd, env, stdio: ['pipe', 'ignore', 'ignore'] });
    // With job control, so that `%1` is what runs, and INT reaches what runs behind. Whatever ends the
    // test, the shell comes to the end of its input, and ends what runs.
    this.#type('set -m');
    this.#type(`trap 'for job in $(jobs -p); do kill -TERM -- -$job; done 2>/dev/null' EXIT`);
  }

  /**
   * Runs a command, and returns what it printed, and whether the page shows that, when it has ended, or has printed what is
   * shown if it continues. Never rejects: the comparison shows what was printed until then.
   */
  async run({ command, output, interrupted, background }: Shown) {
    const place = join(this.#outputs, String((this.#count += 1)));
    const redirect = `>${place}.out 2>${place}.err </dev/null`;
    this.#type(`{ ${command.trimEnd()}\n} ${redirect}${interrupted ? ' &' : ''}`);
    if (!interrupted) this.#type(`echo $? >${place}.code`);
    const printed = (): string => {
      const text = textOf(`${place}.out`) || textOf(`${place}.err`).replaceAll(JOB_ENDED, '');
      return text === '' || text.endsWith('\n') ? text : `${text}\n`;
    };
    const continues = background || interrupted;
    const isShown = (): boolean => isAsShown(printed(), output, continues);
    const ended = (): boolean => existsSync(`${place}.code`);
    await lookUntil(continues ? isShown : ended);
    if (interrupted) {
      this.#type(`kill -INT -- -$!; wait $! 2>/dev/null; echo $? >${place}.code`);
      await lookUntil(ended);
    }
    return { printed: printed(), ok: isShown() };
  }

  /** Ends whatever still runs. */
  async close(): Promise<void> {
    const ended = once(this.#shell, 'close');
    this.#shell.stdin?.end();
    // A loop that waits for what does not come does not see the end of the input.
    const timer = setTimeout(() => this.#shell.kill('SIGHUP'), 1000);
    await ended;
    clearTimeout(timer);
  }

  #type(line: string): void {
    this.#shell.stdin?.write(`${line}\n`);
  }
}

/** Waits until it is true, or for too long. A loaded machine has its time. */
async function lookUntil(condition: () => boolean): Promise<void> {
  const found = until('the output', () => condition() || undefined, { within: 120_000 });
  await found.catch(() => undefined);
}

function textOf(path: string): string {
  return existsSync(path) ? readFileSync(path, 'utf8') : '';
}

const root = join(import.meta.dirname, '..', '..');

/** Of the program, and of examples/state-file/minimal.yaml. */
const DEFAULT_PORTS = ['10249', '10256', '12090', '8080', '9001', '9002'];

export interface PageRun {
  /** Such as `docs/reference/status.md`. */
  readonly page: string;
  /** Only blocks with this mark. Default: those with none. */
  readonly mark?: string;
  /** Ports of the page that the test has already, such as that of an API server. */
  readonly ports?: Readonly<Record<string, number>>;
  readonly env?: NodeJS.ProcessEnv;
  /** Files that are there, by name. */
  readonly files?: Readonly<Record<string, string>>;
  /** Whether the environment keeps the program off the default ports, and its log as at a terminal. Default: true. */
  readonly apart?: boolean;
  /** What runs the shell. In a namespace of its own the ports of the page are free. */
  readonly inside?: readonly string[];
  /** What is done there before. */
  readonly setup?: readonly string[];
}

/** A test that every command of a page does what the page says. `prepare` starts what the page talks to. */
export function testPage(
  page: string,
  prepare: (t: Test) => Omit<PageRun, 'page'> | Promise<Omit<PageRun, 'page'>> = () => ({}),
): void {
  const missing = ['bash', 'curl', 'jq'].filter((name) => !isInstalled(name));
  const skip =
    process.platform === 'win32'
      ? 'the page is for a POSIX shell'
      : missing.length > 0 && `needs ${missing.join(', ')}`;
  void tap.test(`every command of ${page} does what it says`, { skip }, async (t) =>
    runPage(t, { page, ...(await prepare(t)) }),
  );
}

/** Types every command of a page into a shell, in a folder of its own, and compares what it prints. */
async function runPage(t: Test, run: PageRun): Promise<void> {
  const folder = shortDir(t);
  for (const each of ['deploy', 'schema']) symlinkSync(join(root, each), join(folder, each));
  for (const [name, text] of Object.entries(run.files ?? {}))
    writeFileSync(join(folder, name), text);
  let text = readFileSync(join(root, run.page), 'utf8');
  const env = { ...process.env, ...run.env };
  let replace = (other: string): string => other;
  if (run.inside === undefined) {
    const ports = await otherPorts(text, run.ports);
    replace = (other) => other.replaceAll(/\b\d{4,5}\b/g, (port) => ports.get(port) ?? port);
    if (run.apart !== false) {
      env['KPNG_METRICS_BIND_ADDRESS'] ??= `127.0.0.1:${ports.get('10249')}`;
      env['KPNG_HEALTHZ_BIND_ADDRESS'] ??= `127.0.0.1:${ports.get('10256')}`;
      env['KPNG_API'] = `127.0.0.1:${ports.get('12090')}`;
      env['KPNG_LISTEN'] = `tcp://127.0.0.1:${ports.get('12090')}`;
      // A user who runs the tests as root keeps the rules and addresses of the machine.
      env['KPNG_PORTAL'] = 'address';
    }
  }
  text = replace(text);
  copyExamples(folder, replace);
  if (run.apart !== false) {
    env['KPNG_LOGGING_FORMAT'] = 'text';
    env['KPNG_ADMIN_SOCKET'] = run.env?.['KPNG_ADMIN_SOCKET'] ?? join(folder, 'run', 'admin.sock');
  } else delete env['KPNG_ADMIN_SOCKET'];
  mkdirSync(join(folder, 'run'), { mode: 0o700 });
  text = text.replaceAll(/\/run\/kpng(?:-userspace)?\b/g, join(folder, 'run'));
  env['PATH'] = [programs(folder), dirname(process.execPath), env['PATH']].join(delimiter);
  const commands = shownCommands(text, run.mark);
  if (run.inside === undefined) {
    for (const { command } of commands) checkHarmless(command);
  }
  t.ok(commands.length > 0, 'the page has commands');
  const terminal = new Terminal(folder, env, run.inside);
  try {
    const setup = (run.setup ?? []).map((command) => {
      return { command, output: '', interrupted: false, background: false };
    });
    for (const each of setup) await terminal.run(each);
    for (const shown of commands) {
      const { printed, ok } = await terminal.run(shown);
      t.ok(ok, shown.command, { printed, shown: shown.output });
      // What follows builds on it.
      if (!ok) break;
    }
  } finally {
    await terminal.close();
  }
}

/** The state files of examples/, with other ports where the page has others. */
function copyExamples(folder: string, replace: (text: string) => string): void {
  const from = join(root, 'examples', 'state-file');
  const to = join(folder, 'examples', 'state-file');
  mkdirSync(to, { recursive: true });
  for (const name of readdirSync(from)) {
    writeFileSync(join(to, name), replace(readFileSync(join(from, name), 'utf8')));
  }
}

/** Ports with four digits, below those that examples and pages have. */
let shortBlock: ReturnType<typeof portBlock> | undefined;
const shortPorts = () => (shortBlock ??= portBlock(1024, 5000));

/**
 * For each port on 127.0.0.1 that the page shows, and for the default ones, one that is free and has
 * as many digits, so that tables look the same.
 */
async function otherPorts(
  text: string,
  given: Readonly<Record<string, number>> = {},
): Promise<Map<string, string>> {
  const shown = text.matchAll(
    /(?:(?:127\.0\.0\.1|localhost|\[::1\]|port)[: ]|port: |listen\(|-bind-address :)(\d{4,5})\b/g,
  );
  const others = new Map(Object.entries(given).map(([port, other]) => [port, String(other)]));
  for (const port of new Set([...DEFAULT_PORTS, ...[...shown].map(([, port = '']) => port)])) {
    const choose = port.length === 4 ? await shortPorts() : freePort;
    while (!others.has(port)) {
      const other = String(await choose());
      if (![...others.values()].includes(other)) others.set(port, other);
    }
  }
  return others;
}

/** Throws for what would change packet rules or addresses of the machine. */
function checkHarmless(command: string): void {
  const dangerous =
    /(?:^|[|;&] *)(?:nft|ip6?tables\S*|ip|sysctl|systemctl|kubectl) |\bcleanup\b|--portal[ =](?!address|none)|--portal-interface/;
  if (/--dry-run/.test(command)) return;
  if (dangerous.test(command)) throw new Error(`not outside a namespace: ${command}`);
}

/** A folder with the programs of the package, and an `npm` that starts the program as `npm start` does, but sooner. */
function programs(folder: string): string {
  const bin = join(folder, '.bin');
  mkdirSync(bin);
  const write = (name: string, lines: string): void => {
    writeFileSync(join(bin, name), `#!/bin/sh\n${lines}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  const start = (file: string): string =>
    `exec "${process.execPath}" "${join(root, 'bin', file)}" "$@"`;
  for (const file of readdirSync(join(root, 'bin'))) {
    if (file !== 'start.js') write(file.replace(/\.js$/, ''), start(file));
  }
  const words = 'for word in start -s --; do [ "$1" = "$word" ] && shift; done';
  write(
    'npm',
    `case "$1" in start) ;; *) echo "not in a test: npm $*" >&2; exit 127;; esac\n${words}\n${start('kpng-userspace.js')}`,
  );
  // It writes each answer at once when it writes to a terminal.
  write('jq', `PATH=\${PATH#*:} exec jq --unbuffered "$@"`);
  return bin;
}
