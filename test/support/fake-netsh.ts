import { readFileSync } from 'node:fs';
import type { Command } from '../../src/portal/exec.ts';
import type { HostAddress } from '../../src/util/host-addresses.ts';
import { FakeExec, type Reaction } from './fake-exec.ts';

const EXISTS = 'The object already exists.';
const ABSENT = 'Element not found.';
const NO_INTERFACE = 'The filename, directory name, or volume label syntax is incorrect.';

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

  /** How often an interface was listed. */
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
    if (waits > 0) {
      if (this.#find(address) !== undefined) this.tentative.set(address, waits - 1);
      return false;
    }
    return this.#find(address) !== undefined;
  };

  #find(address: string): FakeWindowsAddress | undefined {
    return [...this.interfaces.values()].flat().find((each) => each.address === address);
  }

  protected override react({ file, args }: Command): Reaction {
    if (this.broken !== undefined) return this.broken;
    if (file === 'netstat') return this.#netstat(args.at(-1) === 'TCPv6');
    if (file !== 'netsh') return { fails: 'missing' };
    if (args[0] === '-f') return this.#script(args[1] ?? '');
    return this.#result(args.includes('show') ? this.#show(args) : this.#change(args));
  }

  #script(path: string): Reaction {
    const lines = readFileSync(path, 'utf8').split('\r\n').slice(0, -1);
    this.scripts.push(lines);
    const said = lines.map((line) => this.#change(wordsOf(line)));
    return this.#result(said.find((text) => typeof text === 'string') ?? { stdout: '\r\n' });
  }

  #result(said: string | { readonly stdout: string }): Reaction {
    if (typeof said !== 'string') return said;
    return { fails: 'exit', exitCode: 1, stdout: `${said}\r\n\r\n` };
  }

  #show(args: readonly string[]): string | { readonly stdout: string } {
    if (args[1] === 'portproxy') return this.#showRules(args[3] ?? '');
    if (args[3] === 'excludedportrange') return { stdout: '\r\n      5357        5357\r\n' };
    const name = valueOf(args, 'name') ?? valueOf(args, 'interface') ?? '';
    const list = this.interfaces.get(name);
    if (list === undefined) return NO_INTERFACE;
    const lines = args.includes('ipv6') ? showIpv6(list) : showIpv4(name, list);
    return { stdout: `\r\n${lines.join('\r\n')}\r\n\r\n` };
  }

  #showRules(type: string): { readonly stdout: string } {
    const rows = [...this.rules].flatMap(([key, to]) => {
      const [own, address = '', port = ''] = key.split(' ');
      return own === type ? [`${address.padEnd(15)} ${port.padEnd(11)} ${to}`] : [];
    });
    const head = ['', 'Listen on ipv4:             Connect to ipv4:', ''];
    const columns = [
      'Address         Port        Address         Port',
      '--------------- ----------',
    ];
    return { stdout: [...head, ...columns, ...rows, ''].join('\r\n') };
  }

  #changeRule(args: readonly string[]): string | { readonly stdout: string } {
    const place = [valueOf(args, 'listenaddress'), valueOf(args, 'listenport')];
    const key = [args[3], ...place].join(' ');
    if (args[2] === 'add') {
      if (this.refused.has(String(place[0]))) return 'The parameter is incorrect.';
      this.rules.set(key, `${valueOf(args, 'connectaddress')} ${valueOf(args, 'connectport')}`);
    } else if (!this.rules.delete(key)) return ABSENT;
    return { stdout: '\r\n' };
  }

  /** What netsh says when a change fails. */
  #change(args: readonly string[]): string | { readonly stdout: string } {
    if (args[1] === 'portproxy') return this.#changeRule(args);
    const list = this.interfaces.get(valueOf(args, 'name') ?? valueOf(args, 'interface') ?? '');
    if (list === undefined) return NO_INTERFACE;
    const [address = '', length] = (valueOf(args, 'address') ?? '').split('/');
    const at = list.findIndex((each) => each.address === address);
    if (args[2] === 'delete') {
      if (at === -1) return ABSENT;
      list.splice(at, 1);
    } else {
      if (this.#find(address) !== undefined) return EXISTS;
      if (this.refused.has(address)) return 'The parameter is incorrect.';
      const prefix = valueOf(args, 'mask') === '255.255.255.255' ? 32 : Number(length);
      const skipAsSource = valueOf(args, 'skipassource') === 'true';
      list.push({ address, prefix, skipAsSource });
    }
    return { stdout: '\r\n' };
  }

  #netstat(six: boolean): Reaction {
    const lines = [...this.connections]
      .filter((address) => address.includes(':') === six)
      .map((address) => {
        const host = six ? `[${address}]` : address;
        return `  TCP    ${host}:80           192.0.2.9:41000        ESTABLISHED`;
      });
    return { stdout: ['', 'Active Connections', '', ...lines, ''].join('\r\n') };
  }
}

function showIpv4(name: string, list: readonly FakeWindowsAddress[]): string[] {
  const four = list.filter(({ address }) => !address.includes(':'));
  return [
    `Configuration for interface "${name}"`,
    ...four.flatMap(({ address, prefix }) => [
      `    IP Address:                           ${address}`,
      `    Subnet Prefix:                        ${address}/${prefix} (mask 255.255.255.255)`,
    ]),
    '    Default Gateway:                      10.99.99.99',
  ];
}

function showIpv6(list: readonly FakeWindowsAddress[]): string[] {
  const six = list.filter(({ address }) => address.includes(':'));
  return [
    'Interface 12: vEthernet',
    '',
    'Addr Type  DAD State   Valid Life Pref. Life Address',
    '---------  ----------- ---------- ---------- ------------------------',
    ...six.map(({ address }) => `Manual     Preferred     infinite   infinite ${address}`),
    'Other      Preferred     infinite   infinite fe80::1%12',
  ];
}

function valueOf(args: readonly string[], parameter: string): string | undefined {
  return args.find((arg) => arg.startsWith(`${parameter}=`))?.slice(parameter.length + 1);
}

/** The arguments of a line of a script. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/(?:[^\s"]|"[^"]*")+/g)].map(([word]) => word.replaceAll('"', ''));
}
