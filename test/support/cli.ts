import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { Running } from './running.ts';
import { shortDir } from './short-dir.ts';
import { freePort, type Teardown } from './sockets.ts';

const MAIN = fileURLToPath(new URL('../../bin/kpng-userspace.js', import.meta.url));

export interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A line of the program's JSON log. */
export type CliLogLine = Record<string, unknown> & { readonly level: string; readonly msg: string };

/**
 * Throws for a command line that might write packet rules or addresses on the machine that runs the tests:
 * `--portal` has to be given, and to be one that writes none.
 */
function checkHarmless(args: readonly string[]): void {
  const proxies = args.some((arg) => /^to-\w*userspace/.test(arg)) && args[0] !== 'help';
  const line = args.join(' ');
  const harmless =
    /(?:^| )--portal[ =](?:address|none)(?: |$)/.test(line) && !line.includes('--portal-interface');
  const touches = (proxies && !harmless && !args.includes('--dry-run')) || args[0] === 'cleanup';
  if (touches) throw new Error(`not outside a namespace: ${args.join(' ')}`);
}

/** The program, or another script, as a process of its own. */
export class Cli extends Running {
  readonly log: CliLogLine[] = [];
  /** Lines on standard error that are not JSON. */
  readonly otherLines: string[] = [];
  readonly exited: Promise<Outcome>;
  #begun = '';

  /** `inside`: what runs it in a network namespace, such as `ip netns exec name`. */
  constructor(t: Teardown, args: readonly string[], script = MAIN, inside: readonly string[] = []) {
    if (inside.length === 0) checkHarmless(args);
    const [file = '', ...rest] = [...inside, process.execPath, script, ...args];
    super(t, file, rest, {
      // Several at once would quarrel about the default one; a test that needs it names another.
      KPNG_ADMIN_SOCKET: '',
      // It starts in half of the time; what the other engine does is tested in test/proxysocket and test/system.
      ...(inside.length === 0 && { KPNG_ENGINE: 'node' }),
      ...process.env,
    });
    this.exited = this.ended.then(([code]) => ({
      code,
      stdout: this.stdout,
      stderr: this.stderr,
    }));
  }

  protected override printed(stream: 'stdout' | 'stderr', text: string): void {
    if (stream === 'stdout') return;
    const lines = (this.#begun + text).split('\n');
    this.#begun = lines.pop() ?? '';
    for (const line of lines) {
      if (line.startsWith('{')) this.log.push(JSON.parse(line) as CliLogLine);
      else this.otherLines.push(line);
    }
  }

  /** Waits for a log line with this message, and these keys if any. */
  line(msg: string, keys: Record<string, unknown> = {}): Promise<CliLogLine> {
    const wanted = Object.entries({ ...keys, msg });
    return this.when(`the line ${JSON.stringify(msg)}`, () =>
      this.log.find((line) => wanted.every(([key, value]) => line[key] === value)),
    );
  }

  /** Waits until a condition on what the program has said holds. */
  async until(condition: () => boolean, what: string): Promise<void> {
    await this.when(what, () => condition() || undefined);
  }
}

/** Starts the program; it is killed when the test ends, if it still runs. */
export function startCli(t: Teardown, args: readonly string[], script?: string): Cli {
  return new Cli(t, args, script);
}

/** Runs a command that is neither source nor sink, in this process. */
export async function runHere(...args: readonly string[]): Promise<Outcome> {
  checkHarmless(args);
  const { main } = await import('../../src/cli/program.ts');
  const { env, stdin } = process;
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const outputs = Promise.all([text(stdout), text(stderr)]);
  const streams = { stdin, stdout, stderr, env: { KPNG_ADMIN_SOCKET: '', ...env } };
  const code = await main(args, streams as unknown as NodeJS.Process);
  stdout.end();
  stderr.end();
  const [printed, errors] = await outputs;
  return { code, stdout: printed, stderr: errors };
}

/** Runs the program to its end. */
export function runCli(args: readonly string[]): Promise<Outcome> {
  return new Cli({ teardown: () => undefined }, args).exited;
}

/** A service of a state file: its name and the ports of its endpoints on 127.0.0.1. */
interface FileService {
  readonly name: string;
  readonly endpoints: readonly number[];
  /** Default: TCP. */
  readonly protocol?: 'TCP' | 'UDP';
}

/** A proxy as a process of its own, with an admin socket, and the commands that ask it. `ports`: of services, by name. */
export async function adminRig(
  t: Test,
  services: readonly FileService[],
  args: readonly string[] = [],
) {
  const { dir, path, ports } = await stateFile(t, services);
  const socket = join(dir, 'run', 'a.sock');
  const cli = startCli(t, [
    ...'file to-local to-userspace --portal=address --node-name=n1'.split(' '),
    ...`--input=${path} --admin-socket=${socket}`.split(' '),
    ...'--metrics-bind-address= --healthz-bind-address='.split(' '),
    ...args,
  ]);
  await cli.line('The first complete state is in place');
  const run = (...command: string[]): Promise<Outcome> => runHere(...command, '--socket', socket);
  return {
    cli,
    path,
    socket,
    ports,
    /** Runs a command with `--socket`. */
    run,
    /** The same with `--output json`, and its answer. */
    async ask<T>(...command: string[]): Promise<T> {
      const { stdout, stderr } = await run(...command, '--output=json');
      if (stdout === '') throw new Error(stderr);
      return JSON.parse(stdout) as T;
    },
  };
}

/** A state file in a folder of its own, with services on free ports. */
export async function stateFile(t: Teardown, services: readonly FileService[]) {
  const dir = shortDir(t);
  const path = join(dir, 'state.yaml');
  const ports: Record<string, number> = {};
  for (const { name } of services) ports[name] = await freePort();
  writeFileSync(path, stateText(services, ports));
  return { dir, path, ports };
}

/** The text of one; `ports`: where services are reached, by name. */
export function stateText(services: readonly FileService[], ports: Record<string, number>): string {
  const ips = { v4: ['127.0.0.1'] };
  const items = services.map(({ name, endpoints, protocol = 'TCP' }) => {
    const portName = protocol.toLowerCase();
    const port = { name: portName, protocol, port: ports[name], targetport: endpoints[0] ?? 1 };
    return {
      service: { name, ips: { clusterips: ips }, ports: [port] },
      endpoints: endpoints.map((own) => ({
        endpoint: { ips, portoverrides: [{ name: portName, port: own }] },
        topology: { node: 'n1' },
      })),
    };
  });
  return JSON.stringify({ nodes: [{ name: 'n1' }], services: items });
}
