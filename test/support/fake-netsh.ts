import { readFileSync } from 'node:fs';
import type { Command } from '../../src/portal/exec.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { FakeExec, type Reaction } from './fake-exec.ts';

const OK: Reaction = { stdout: '\r\n' };

/** netsh says why on standard output. */
function says(text: string): Reaction {
  return { fails: 'exit', exitCode: 1, stdout: `${text}\r\n\r\n` };
}

function printed(...lines: readonly string[]): Reaction {
  return { stdout: ['', ...lines, ''].join('\r\n') };
}

const EXISTS = says('The object already exists.');
const ABSENT = says('Element not found.');
const INCORRECT = says('The parameter is incorrect.');
const NO_INTERFACE = says('The filename, directory name, or volume label syntax is incorrect.');

export interface FakeWindowsAddress {
  readonly address: string;
  readonly prefix: number;
  readonly skipAsSource: boolean;
}

/**
 * netsh and the Windows behind it, as far as our commands go: scripts are carried out line by line and go
 * on after one that fails; then the exit code is 1. netstat lists the connections that it is given.
 */
export class FakeNetsh extends FakeExec {
  /** What the scripts said, each as lines. */
  readonly scripts: string[][] = [];
  readonly interfaces = new Map<string, FakeWindowsAddress[]>([
    ['vEthernet (HNS Internal NIC)', [{ address: '172.16.0.1', prefix: 20, skipAsSource: false }]],
    ['Ethernet', [{ address: '192.0.2.5', prefix: 24, skipAsSource: false }]],
  ]);
  /** Portproxy rules: `v4tov4 10.96.0.1 80` and the target. */
  readonly rules = new Map<string, string>();
  /** Addresses that Windows does not take. */
  readonly refused = new Set<string>();
  /** Addresses that are there, but cannot be bound for so many attempts; Infinity: ever. */
  readonly tentative = new Map<string, number>();
  /** Local addresses of TCP connections. */
  readonly connections = new Set<string>();
  /** Instead of doing anything, react so. */
  broken: Reaction | undefined;

  /** The argument vectors of netsh, without those of scripts. */
  get vectors(): (readonly string[])[] {
    return this.commands
      .filter(({ file, args }) => file === 'netsh' && args[0] !== '-f')
      .map(({ args }) => args);
  }

  /** How often rules were listed. */
  get listings(): number {
    return this.vectors.filter((args) => args.includes('show')).length;
  }

  on(name: string): FakeWindowsAddress[] {
    const found = this.interfaces.get(name);
    if (found === undefined) throw new Error(`no interface ${name}`);
    return found;
  }

  addresses(name: string): string[] {
    return this.on(name)
      .map(({ address, prefix }) => `${address}/${prefix}`)
      .sort();
  }

  /** What Node reports about the host. */
  readonly host = (): HostAddress[] => [
    { address: '127.0.0.1', loopback: true },
    ...[...this.interfaces.values()].flat().map(({ address }) => ({ address, loopback: false })),
  ];

  /** Whether a socket can be bound. */
  readonly has = async (address: string): Promise<boolean> => {
    const waits = this.tentative.get(address) ?? 0;
    const isThere = this.#find(address) !== undefined;
    if (waits > 0 && isThere) this.tentative.set(address, waits - 1);
    return waits === 0 && isThere;
  };

  #find(address: string): FakeWindowsAddress | undefined {
    return [...this.interfaces.values()].flat().find((each) => each.address === address);
  }

  protected override react({ file, args }: Command): Reaction {
    if (this.broken !== undefined) return this.broken;
    if (file === 'netstat') return this.#netstat(args.at(-1) === 'TCPv6');
    if (file !== 'netsh') return { fails: 'missing' };
    if (args[0] === '-f') return this.#script(args[1] ?? '');
    if (args.includes('excludedportrange')) return printed('      5357        5357');
    return args[2] === 'show' ? this.#showRules(args[3] ?? '') : this.#change(args);
  }

  #script(path: string): Reaction {
    const lines = readFileSync(path, 'utf8').split('\r\n').slice(0, -1);
    this.scripts.push(lines);
    const reactions = lines.map((line) => this.#change(wordsOf(line)));
    return reactions.find((each) => 'fails' in each) ?? OK;
  }

  #showRules(type: string): Reaction {
    const rows = [...this.rules].flatMap(([key, to]) => {
      const [own, address = '', port = ''] = key.split(' ');
      return own === type ? [`${address.padEnd(15)} ${port.padEnd(11)} ${to}`] : [];
    });
    return printed('Address         Port        Address         Port', '------- --', ...rows);
  }

  #changeRule(args: readonly string[]): Reaction {
    const place = [valueOf(args, 'listenaddress'), valueOf(args, 'listenport')];
    const key = [args[3], ...place].join(' ');
    if (args[2] === 'delete') return this.rules.delete(key) ? OK : ABSENT;
    if (this.refused.has(String(place[0]))) return INCORRECT;
    this.rules.set(key, `${valueOf(args, 'connectaddress')} ${valueOf(args, 'connectport')}`);
    return OK;
  }

  #change(args: readonly string[]): Reaction {
    if (args[1] === 'portproxy') return this.#changeRule(args);
    const list = this.interfaces.get(valueOf(args, 'name') ?? valueOf(args, 'interface') ?? '');
    if (list === undefined) return NO_INTERFACE;
    const [address = '', length] = (valueOf(args, 'address') ?? '').split('/');
    if (args[2] === 'delete') {
      const at = list.findIndex((each) => each.address === address);
      if (at === -1) return ABSENT;
      list.splice(at, 1);
      return OK;
    }
    if (this.#find(address) !== undefined) return EXISTS;
    if (this.refused.has(address)) return INCORRECT;
    const prefix = valueOf(args, 'mask') === '255.255.255.255' ? 32 : Number(length);
    list.push({ address, prefix, skipAsSource: valueOf(args, 'skipassource') === 'true' });
    return OK;
  }

  #netstat(six: boolean): Reaction {
    const hosts = [...this.connections].filter((address) => address.includes(':') === six);
    return printed(
      ...hosts.map((address) => {
        const host = six ? `[${address}]` : address;
        return `  TCP    ${host}:80           192.0.2.9:41000        ESTABLISHED`;
      }),
    );
  }
}

function valueOf(args: readonly string[], parameter: string): string | undefined {
  return args.find((arg) => arg.startsWith(`${parameter}=`))?.slice(parameter.length + 1);
}

/** The arguments of a line of a script. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/(?:[^\s"]|"[^"]*")+/g)].map(([word]) => word.replaceAll('"', ''));
}
