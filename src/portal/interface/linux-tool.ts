/** Runs the program `ip`, and says what its messages mean. */
import { ADDRESS_WRITE_MS, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import {
  diagnose,
  NET_ADMIN,
  quoted,
  toolFailure,
  type Tool,
  type ToolError,
} from '../tool-failure.ts';
import { readLinks, type Link, type Spelling } from './linux-list.ts';

/** What `ip` may print. A listing has about 160 bytes for each address. */
export const MAX_OUTPUT = 64 * 1024 * 1024;

/** A listing during which something changed is made again, so many times. */
const LISTINGS = 3;

/** ip has no translations, and prints the kernel's error in the words of strerror or of the kernel. */
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

/** What a message of ip means. */
export function saidFailure(said: string, doing: string, cause?: unknown): ToolError {
  return diagnose(said, quoted(said), doing, IP, cause);
}

/** Whether a message is about the process or the interface, and so says nothing of an address. */
export function concernsAll(said: string): boolean {
  return /Operation not permitted|Cannot find device|No such device|does not exist/.test(said);
}

/** Whether an address could not be added because it is there. */
export function saysExists(said: string): boolean {
  return /File exists|already assigned/i.test(said);
}

/** Whether an address could not be removed because it is not there. */
export function saysAbsent(said: string): boolean {
  return /Cannot assign requested address|address not found/i.test(said);
}

/** Whether an interface could not be made because the kernel does not know its kind. */
export function saysUnknownKind(said: string): boolean {
  return /Unknown device type|not supported/i.test(said);
}

/** The interfaces of the host with their addresses. Rejects with KPNG_PORTAL_*. */
export async function listLinks(exec: Exec, spelling: Spelling): Promise<Link[]> {
  const args = ['-j', '-d', 'address', 'show'];
  for (let left = LISTINGS; ; left -= 1) {
    try {
      const { stdout, stderr } = await exec({ file: 'ip', args, maxOutput: MAX_OUTPUT });
      if (left > 1 && /Dump was interrupted/.test(stderr)) continue;
      return readLinks(stdout, spelling);
    } catch (cause) {
      throw toolFailure(cause, 'listing the addresses of the host', IP);
    }
  }
}

/**
 * Runs a batch to its end and returns what is said of the lines that failed, by their numbers from 1.
 * Rejects when ip does not get to the end.
 */
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
    throw saidFailure(rest || cause.message, doing, cause);
  }
}

/** What `ip -force -batch -` prints: messages of each line that failed, and `rest` where it has stopped. */
function readBatchErrors(stderr: string): { failed: Map<number, string>; rest: string } {
  const failed = new Map<number, string>();
  let said: string[] = [];
  for (const text of stderr.split('\n')) {
    const line = text.trim().replace(/^(?:Error: |RTNETLINK answers: )/, '');
    const [, number] = /^Command failed .*:(\d+)$/.exec(line) ?? [];
    if (number !== undefined) {
      failed.set(Number(number), said.join('; '));
      said = [];
    } else if (line !== '') said.push(line);
  }
  return { failed, rest: said.join('; ') };
}

/** `10.0.0.1/32` or `fd00::1/128`. */
export function asHostNetwork(address: string): string {
  return `${address}/${address.includes(':') ? 128 : 32}`;
}

/** The line that removes an address. */
export function removalOf(address: string, name: string): string {
  return `address delete ${asHostNetwork(address)} dev ${name}`;
}
