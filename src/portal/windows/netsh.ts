/** Runs netsh. Listings are in the system's language and code page: parsed by numbers, addresses and order. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KpngError } from '../../errors.ts';
import { familyOf } from '../../util/family.ts';
import type { PortRange } from '../../util/port-range.ts';
import { hostOf, type Verb } from '../interface/addresses.ts';
import { ADDRESS_WRITE_MS, MAX_ADDRESS_LIST, WRITE_TIMEOUT_MS } from '../bounds.ts';
import {
  type Exec,
  ExecError,
  isAboutContent,
  quoted,
  runTool,
  type Tool,
  toolFailure,
} from '../exec.ts';

/** Failures tolerated when retrying changes one by one after a failed script; then the rest counts as failed. */
export const MAX_SINGLE_FAILURES = 8;

const NETSH: Tool = {
  program: 'netsh',
  remedy:
    'it is in %SystemRoot%\\System32, or leave --portal-interface empty and give the host the ' +
    'addresses yourself',
  diagnoses: [
    {
      pattern: /elevation|administrator|access is denied/i,
      code: 'KPNG_PORTAL_PERMISSION',
      advice: 'run the process as an administrator or as LocalSystem',
    },
    {
      pattern: /(?:)/,
      code: 'KPNG_PORTAL_FAILED',
      blame: 'content',
      advice: 'changing addresses needs an administrator or LocalSystem',
    },
  ],
  // The exit code is always 1; the cause is on standard output, in the system's language.
  excerpt: ({ stdout, stderr, exitCode }) =>
    quoted(`${stdout}\n${stderr}`.trim() || `code ${exitCode}`),
};

/**
 * Adds an address as a network of its own, until the next boot, never as a source address, or deletes it. Older netsh
 * accepts a prefix length only for IPv6.
 */
export function changeArgs(verb: Verb, address: string, name: string): string[] {
  const isIPv4 = familyOf(address) === 4;
  const where = isIPv4
    ? ['ipv4', verb, 'address', `name=${name}`]
    : ['ipv6', verb, 'address', `interface=${name}`];
  const change = (...more: string[]) => ['interface', ...where, ...more, 'store=active'];
  if (verb === 'delete') return change(`address=${address}`);
  const network = isIPv4
    ? [`address=${address}`, 'mask=255.255.255.255']
    : [`address=${address}/128`];
  return change(...network, 'skipassource=true');
}

/** Runs one command and returns its output. Rejects with KPNG_PORTAL_*; `doing`: the action. */
export function runNetsh(exec: Exec, args: readonly string[], doing: string): Promise<string> {
  const limits = { timeoutMs: WRITE_TIMEOUT_MS, maxOutput: MAX_ADDRESS_LIST };
  return runTool(exec, NETSH, doing, { args, ...limits });
}

/**
 * Runs commands in one process. If some fail (it is unknown which), or a script cannot express them, those that are
 * still `left` are run one by one. Resolves with the failures; after a few, the last one counts for the rest.
 * Rejects with KPNG_PORTAL_* if that is not about the input.
 */
export async function runAll(
  exec: Exec,
  commands: ReadonlyMap<string, readonly string[]>,
  /** Describes one of them, or without a key all. */
  textOf: (key?: string) => string,
  left: () => Promise<Iterable<string>>,
  /** Whether the failure of one of them does not matter. */
  isFine: (key: string) => Promise<boolean>,
): Promise<Map<string, KpngError>> {
  const failed = new Map<string, KpngError>();
  const isSingle = commands.size === 1;
  if (!isSingle && (await runScript(exec, [...commands.values()], textOf()))) return failed;
  let last: KpngError | undefined;
  for (const key of isSingle ? commands.keys() : await left()) {
    if (last === undefined || failed.size < MAX_SINGLE_FAILURES) {
      try {
        await runNetsh(exec, commands.get(key) ?? [], textOf(key));
        continue;
      } catch (error) {
        if (!isAboutContent(error)) throw error;
        if (await isFine(key)) continue;
        last = error;
      }
    }
    failed.set(key, last);
  }
  return failed;
}

/** Runs several commands in one process. False: some failed, or a script cannot express them. */
async function runScript(
  exec: Exec,
  commands: readonly (readonly string[])[],
  doing: string,
): Promise<boolean> {
  if (commands.length === 0) return true;
  const lines = commands.map(scriptLine);
  if (lines.includes(undefined)) return false;
  let folder: string | undefined;
  try {
    folder = await mkdtemp(join(tmpdir(), 'kpng-userspace-'));
    const file = join(folder, 'netsh.txt');
    await writeFile(file, `${lines.join('\r\n')}\r\n`, { mode: 0o600 });
    const timeoutMs = WRITE_TIMEOUT_MS + lines.length * ADDRESS_WRITE_MS;
    await exec({ file: 'netsh', args: ['-f', file], timeoutMs, maxOutput: MAX_ADDRESS_LIST });
    return true;
  } catch (cause) {
    if (cause instanceof ExecError && cause.failure === 'exit') return false;
    throw toolFailure(cause, doing, NETSH);
  } finally {
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
  }
}

/** A command as a line of a script for `netsh -f`; undefined if a script cannot express it. */
export function scriptLine(args: readonly string[]): string | undefined {
  // Scripts are read in the system's code page, and have no way to write a quote.
  if (args.some((arg) => !/^[ !#-~]+$/.test(arg))) return undefined;
  return args.map((arg) => (arg.includes(' ') ? arg.replace(/=(.*)/, '="$1"') : arg)).join(' ');
}

/** The reserved ports of a range in the output of `netsh interface ipv4 show excludedportrange`. */
export function readExcludedPorts(text: string, within: PortRange): PortRange[] {
  return text.split('\n').flatMap((line) => {
    const [, from, to] = /^\s*(\d{1,5})\s+(\d{1,5})\s*\*?\s*$/.exec(line) ?? [];
    const first = Math.max(Number(from), within.first);
    const last = Math.min(Number(to), within.last);
    return first <= last ? [{ first, last }] : [];
  });
}

/** Local addresses of TCP connections in `netstat -n -p TCP`, without those in TIME_WAIT. */
export function readConnections(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    const [protocol, here = '', there = '', state] = line.trim().split(/\s+/);
    const isOpen = protocol === 'TCP' && state !== 'TIME_WAIT' && !there.endsWith(':0');
    return isOpen ? hostOf(here) : [];
  });
}

type Log = Record<'info' | 'warn', (message: string, keys: Record<string, unknown>) => void>;

/** The ports of a range that Windows has reserved, as Hyper-V does at each boot. None if netsh fails. */
export async function excludedPorts(
  exec: Exec,
  range: PortRange,
  log: Log,
): Promise<readonly PortRange[]> {
  const found: PortRange[] = [];
  for (const protocol of ['tcp', 'udp']) {
    const args = ['interface', 'ipv4', 'show', 'excludedportrange', `protocol=${protocol}`];
    try {
      const { stdout } = await exec({ file: 'netsh', args });
      found.push(...readExcludedPorts(stdout, range));
    } catch (error) {
      if (!(error instanceof ExecError)) throw error;
      log.warn('Reading the ports reserved by Windows failed', { err: error.message });
      return [];
    }
  }
  if (found.length > 0) {
    const ports = [...new Set(found.map(({ first, last }) => `${first}-${last}`))];
    log.info('Windows has reserved ports of --port-range; they are not used', { ports });
  }
  return found;
}
