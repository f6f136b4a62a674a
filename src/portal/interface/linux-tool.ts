import type { HostAddress } from '../../util/host-addresses.ts';
import { ADDRESS_WRITE_MS, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { type Exec, ExecError } from '../exec.ts';
import {
  diagnose,
  NET_ADMIN,
  quoted,
  type Tool,
  type ToolError,
  toolFailure,
} from '../tool-failure.ts';
import { canonicalAddress } from './addresses.ts';

/**
 * Marks our addresses: the metric of an address, which the kernel keeps in both families since Linux 4.18. A /32 or
 * /128 address has no route that the metric would apply to. Labels are IPv4 only; `proto` needs Linux 5.18 and
 * iproute2 6.3.
 */
export const MARK_METRIC = 27_504;

/** Marks the interfaces that this program has created. */
export const MARK_ALIAS = 'kpng-userspace';

export interface Link {
  readonly name: string;
  readonly isUp: boolean;
  readonly isOurs: boolean;
  readonly addresses: readonly LinkAddress[];
}

export interface LinkAddress extends HostAddress {
  readonly isOurs: boolean;
  readonly isLinkLocal: boolean;
}

/** The fields used from the JSON of `ip -j -d address show`. */
interface RawLink {
  readonly ifname?: string;
  readonly flags?: readonly string[];
  readonly ifalias?: string;
  readonly addr_info?: readonly {
    readonly local?: string;
    readonly prefixlen?: number;
    readonly metric?: number;
    readonly scope?: string;
  }[];
}

/** Parses the output of `ip -j -d address show`. Throws a SyntaxError if it is not JSON. */
export function readLinks(json: string): Link[] {
  const raw = JSON.parse(json) as readonly RawLink[];
  return raw.flatMap(({ ifname, flags = [], ifalias, addr_info: list = [] }) => {
    if (ifname === undefined) return [];
    const loopback = flags.includes('LOOPBACK');
    const addresses = list.flatMap(({ local, prefixlen, metric, scope }): LinkAddress[] => {
      if (local === undefined) return [];
      const host = prefixlen === (local.includes(':') ? 128 : 32);
      return [
        {
          address: canonicalAddress(local),
          loopback,
          isOurs: host && metric === MARK_METRIC,
          isLinkLocal: scope === 'link',
        },
      ];
    });
    return [
      { name: ifname, isUp: flags.includes('UP'), isOurs: ifalias === MARK_ALIAS, addresses },
    ];
  });
}

/** Maximum output of `ip`. A listing has about 160 bytes per address. */
export const MAX_OUTPUT = 64 * 1024 * 1024;

/** Maximum number of listings if something changes during them. */
const LISTINGS = 3;

/** ip has no translations, and prints the messages of strerror or of the kernel. */
const IP: Tool = {
  program: 'ip',
  remedy: 'install the package iproute2, or leave --portal-interface out',
  diagnoses: [
    {
      pattern: /Operation not permitted/,
      code: 'KPNG_PORTAL_PERMISSION',
      advice: NET_ADMIN,
    },
    {
      pattern: /Permission denied|IPv6 is disabled/,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'IPv6 is switched off on the interface (sysctl net.ipv6.conf.*.disable_ipv6)',
    },
    {
      pattern: /garbage|unknown option|invalid option|unrecognized option/i,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'the ip of iproute2 4.19 or later is needed',
    },
    {
      pattern: /not supported|Unknown device type/i,
      code: 'KPNG_PORTAL_UNSUPPORTED',
      advice: 'the kernel lacks what is needed',
    },
  ],
};

export function lineFailure(line: string, doing: string, cause?: unknown): ToolError {
  return diagnose(line, quoted(line), doing, IP, cause);
}

/** Messages that concern the process or the interface rather than an address. */
export const CONCERNS_ALL =
  /Operation not permitted|Cannot find device|No such device|does not exist/;

export const EXISTS = /File exists|already assigned/i;

export const IS_ABSENT = /Cannot assign requested address|address not found/i;

export const UNKNOWN_KIND = /Unknown device type|not supported/i;

/** The interfaces of the host with their addresses. Rejects with KPNG_PORTAL_*. */
export async function listLinks(exec: Exec): Promise<Link[]> {
  const args = ['-j', '-d', 'address', 'show'];
  for (let left = LISTINGS; ; left -= 1) {
    try {
      const { stdout, stderr } = await exec({ file: 'ip', args, maxOutput: MAX_OUTPUT });
      if (left > 1 && /Dump was interrupted/.test(stderr)) continue;
      return readLinks(stdout);
    } catch (cause) {
      throw toolFailure(cause, 'listing the addresses of the host', IP);
    }
  }
}

/** Runs a batch. Returns the messages of failed lines by number, from 1. Rejects if ip stops early. */
export async function runBatch(
  exec: Exec,
  lines: readonly string[],
  doing: string,
): Promise<ReadonlyMap<number, string>> {
  if (lines.length === 0) return new Map();
  try {
    await exec({
      file: 'ip',
      args: ['-force', '-batch', '-'],
      stdin: `${lines.join('\n')}\n`,
      timeoutMs: WRITE_TIMEOUT_MS + lines.length * ADDRESS_WRITE_MS,
      maxOutput: MAX_OUTPUT,
    });
    return new Map();
  } catch (cause) {
    if (!(cause instanceof ExecError) || cause.failure !== 'exit') {
      throw toolFailure(cause, doing, IP);
    }
    const { failed, rest } = readBatchErrors(cause.stderr);
    if (rest === '' && failed.size > 0) return failed;
    throw lineFailure(rest || cause.message, doing, cause);
  }
}

/** Parses the output of `ip -force -batch -`: the messages of failed lines, and `rest` after the last of them. */
function readBatchErrors(stderr: string): { failed: Map<number, string>; rest: string } {
  const failed = new Map<number, string>();
  let message: string[] = [];
  for (const text of stderr.split('\n')) {
    const line = text.trim().replace(/^(?:Error: |RTNETLINK answers: )/, '');
    const [, number] = /^Command failed .*:(\d+)$/.exec(line) ?? [];
    if (number !== undefined) {
      failed.set(Number(number), message.join('; '));
      message = [];
    } else if (line !== '') message.push(line);
  }
  return { failed, rest: message.join('; ') };
}

/** `10.0.0.1/32` or `fd00::1/128`. */
export function asHostNetwork(address: string): string {
  return `${address}/${address.includes(':') ? 128 : 32}`;
}

export function removalOf(address: string, name: string): string {
  return `address delete ${asHostNetwork(address)} dev ${name}`;
}
