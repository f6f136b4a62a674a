import { execFileSync } from 'node:child_process';
import { readdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { Cli, type CliLogLine } from '../../support/cli.ts';
import { parseMetrics, type MetricsPage } from '../../support/metrics-page.ts';
import { shortDir } from '../../support/short-dir.ts';
import type { Teardown } from '../../support/sockets.ts';
import type { Lab } from './lab.ts';
import { TRANSPARENT_SYSCTLS } from './rule-kinds.ts';

/** A portal that redirects all traffic of the node, and what is special about it. */
export interface PortalUnderTest {
  readonly name: string;
  readonly flags: readonly string[];
  /** The same for a second program on the same node. */
  readonly otherFlags: readonly string[];
  /** What a TCP client of a service without endpoints gets. */
  readonly refusals: readonly string[];
  /** Whether a UDP client of such a service gets any response. */
  readonly refusesDatagrams: boolean;
  /** Settings of the node that it needs. */
  readonly sysctls?: readonly string[];
}

/** What depends on the portal is tested with each of these, the rest with the first. */
export const PORTALS: readonly [PortalUnderTest, ...PortalUnderTest[]] = [
  {
    name: 'nftables',
    flags: ['--portal=nftables'],
    otherFlags: ['--portal=nftables', '--portal-table=other'],
    refusals: ['ECONNREFUSED'],
    refusesDatagrams: true,
  },
  {
    name: 'transparent',
    flags: ['--portal=transparent'],
    otherFlags: [
      '--portal=transparent',
      '--portal-table=other',
      '--portal-mark=0x80',
      '--portal-route-table=10041',
      '--portal-rule-priority=41',
    ],
    refusals: ['ECONNREFUSED'],
    refusesDatagrams: true,
    sysctls: TRANSPARENT_SYSCTLS,
  },
  {
    name: 'iptables',
    flags: ['--portal=iptables'],
    otherFlags: ['--portal=iptables', '--portal-chain-prefix=OTHER'],
    refusals: ['ECONNREFUSED'],
    refusesDatagrams: true,
  },
  {
    name: 'address',
    flags: ['--portal=address', '--portal-interface=kpng0'],
    otherFlags: ['--portal=address', '--portal-interface=kpng1'],
    // Someone listens, who resets the connection as soon as it is there.
    refusals: ['ECONNRESET', 'closed'],
    refusesDatagrams: false,
  },
];

/** Starts the program with a portal, and further flags. */
export function startWith(
  t: Teardown,
  here: Lab,
  portal: PortalUnderTest,
  options: ProgramOptions = {},
): Program {
  const { sysctls = [] } = portal;
  if (sysctls.length > 0) {
    const namespace = here.network.namespace('node');
    execFileSync('ip', ['netns', 'exec', namespace, 'sysctl', '-q', '-w', ...sysctls]);
  }
  return new Program(t, here, { ...options, flags: [...portal.flags, ...(options.flags ?? [])] });
}

/** The name of the server that answered, or `refused` for what the portal does without endpoints. */
export function whoIs({ refusals }: PortalUnderTest, answer: string): string {
  return refusals.includes(answer) ? 'refused' : (answer.split(' ')[0] ?? '');
}

/** An item of the state file's `services`, in the form of docs/reference/state-file.md. */
export type StateService = Readonly<Record<string, unknown>>;

export interface ProgramOptions {
  /** Flags of the backend. */
  readonly flags?: readonly string[];
  /** What runs the program, such as `prlimit` with its arguments. */
  readonly before?: readonly string[];
  /** `n1`, the default, or `elsewhere`. */
  readonly nodeName?: 'n1' | 'elsewhere';
}

/** The lines that report that a state file was read, and that a change set is in place. */
const LOADED = 'Loaded the state file';
const SYNCED = 'userspace syncProxyRules complete';
/** The line about a client who came while there was no endpoint. */
const NO_ENDPOINT = "Couldn't find an endpoint for service";

/**
 * The program itself on the node of a test network, as users run it: the command line, a state file,
 * the log, the pages. Its servers have their usual ports, which are free on the node.
 */
export class Program {
  readonly #here: Lab;
  readonly #path: string;
  readonly #cli: Cli;

  /** Starts it with a state in which there is no service. It ends with the test. */
  constructor(t: Teardown, here: Lab, options: ProgramOptions) {
    const { flags = [], before = [], nodeName = 'n1' } = options;
    this.#here = here;
    this.#path = join(shortDir(t), 'state.yaml');
    this.#write([]);
    const words = ['file', '--input', this.#path, 'to-local', 'to-userspace', '-v=2'];
    const inside = ['ip', 'netns', 'exec', here.network.namespace('node'), ...before];
    const args = [...words, '--node-name', nodeName, ...flags];
    this.#cli = new Cli(args, undefined, inside);
    t.teardown(async () => {
      this.#cli.kill('SIGKILL');
      await this.#cli.exited;
    });
  }

  get pid(): number {
    return this.#cli.child.pid ?? 0;
  }

  /** Descriptors that it has open. */
  get descriptors(): number {
    return readdirSync(`/proc/${this.pid}/fd`).length;
  }

  /** What it has logged so far. */
  get log(): readonly CliLogLine[] {
    return this.#cli.log;
  }

  /** The first error with a code, when it has been logged. */
  async error(code: string): Promise<CliLogLine> {
    const find = () => this.log.find((line) => line['code'] === code && line.level === 'error');
    await this.#cli.until(() => find() !== undefined, `an error ${code}`);
    const found = find();
    if (found === undefined) throw new Error('it was there a moment ago');
    return found;
  }

  /** What it has logged as warnings and errors, but for clients that found no endpoint. */
  get complaints(): string[] {
    return this.#cli.log
      .filter(({ level, msg }) => (level === 'warn' || level === 'error') && msg !== NO_ENDPOINT)
      .map((line) => `${line.msg} ${JSON.stringify(line['err'] ?? '')}`);
  }

  /** Whether it has not ended. */
  get runs(): boolean {
    return this.#cli.child.exitCode === null && this.#cli.child.signalCode === null;
  }

  /** Writes another state, and resolves when it is in place. It has to mean something else for the node. */
  serve(...services: readonly StateService[]): Promise<void> {
    return this.#writeUntil(services, SYNCED);
  }

  /** Writes a state that means the same for the node as the one before, and resolves when it was read. */
  serveSame(...services: readonly StateService[]): Promise<void> {
    return this.#writeUntil(services, LOADED);
  }

  /** What a page answers that one sees on the node, with the status in front: `200 ok`. */
  async page(place: string): Promise<string> {
    const format = ['-w', String.raw`\n%{http_code}`];
    const text = await this.#here.network.inside('node', 'curl', ['-sS', ...format, place]);
    const end = text.lastIndexOf('\n');
    return `${text.slice(end + 1)} ${text.slice(0, end)}`;
  }

  async metrics(): Promise<MetricsPage> {
    return parseMetrics((await this.page('http://127.0.0.1:10249/metrics')).replace(/^200 /, ''));
  }

  async #writeUntil(services: readonly StateService[], message: string): Promise<void> {
    const count = (): number => this.#cli.log.filter(({ msg }) => msg === message).length;
    await this.#cli.line('The first complete state is in place');
    const before = count();
    this.#write(services);
    await this.#cli.until(() => count() > before, `the next line ${JSON.stringify(message)}`);
  }

  #write(services: readonly StateService[]): void {
    const nodes = ['n1', 'elsewhere'].map((name) => ({ name, topology: { node: name } }));
    writeFileSync(`${this.#path}.next`, stringify({ nodes, services }));
    renameSync(`${this.#path}.next`, this.#path);
  }
}
