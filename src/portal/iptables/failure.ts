import { ExecError } from '../exec.ts';
import { NET_ADMIN, toolFailure, type Diagnosis, type ToolError } from '../tool-failure.ts';

/** What to do where there are no programs of iptables. */
export const REMEDY = 'install the package iptables, or use another --portal';

/** The programs of iptables have no translations. Those of both flavours are here. */
const DIAGNOSES: readonly Diagnosis[] = [
  {
    pattern: /holding the xtables lock|Can't lock /,
    code: 'KPNG_PORTAL_LOCKED',
    advice: 'another program is changing the rules; `fuser -v /run/xtables.lock` shows which',
  },
  {
    pattern: /can't open lock file .*(?:Read-only|No such file)/,
    code: 'KPNG_PORTAL_FAILED',
    advice: 'mount /run/xtables.lock of the host into the container, so that all take turns',
  },
  {
    pattern: /Permission denied|Operation not permitted|you must be root/,
    code: 'KPNG_PORTAL_PERMISSION',
    advice: NET_ADMIN,
  },
  {
    pattern:
      /Table does not exist|unable to initialize table|TABLE_ADD failed|Protocol not supported|Address family not supported|is incompatible/,
    code: 'KPNG_PORTAL_UNSUPPORTED',
    advice:
      'the kernel has no such table for this flavour of iptables; try the other --iptables-flavor, or another --portal',
  },
  {
    pattern: /unknown option|unrecognized option|Couldn't load|No chain\/target\/match/,
    code: 'KPNG_PORTAL_UNSUPPORTED',
    blame: 'content',
    advice: 'iptables 1.6.2 or later, and the kernel’s modules for it, are needed',
  },
];

/**
 * What a failed run of a program of iptables means, with what was being done. `stdin` is what it was to
 * read: the older programs name only a line of it.
 */
export function iptablesFailure(cause: unknown, doing: string, stdin = ''): ToolError {
  return toolFailure(cause, doing, {
    program: cause instanceof ExecError ? (cause.command.split(' ')[0] ?? '') : 'iptables',
    remedy: REMEDY,
    diagnoses: DIAGNOSES,
    excerpt: ({ stderr }) => `${JSON.stringify(reasonIn(stderr))}${lineIn(stderr, stdin)}`,
  });
}

/** The line that says what is wrong, among those that say how to get help. */
function reasonIn(stderr: string): string {
  const lines = stderr
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => !/^$|^#|^Try `|^Error occurred|^Ignoring deprecated|^Can't lock/.test(line));
  const best = lines.find((line) => !line.endsWith(':')) ?? lines[0] ?? '';
  return best.slice(0, 200);
}

/** The line of the input that it is about, if it says which. */
function lineIn(stderr: string, stdin: string): string {
  const [, number] = /\bline:? (\d+)\b/.exec(stderr) ?? [];
  const text = number === undefined ? undefined : stdin.split('\n')[Number(number) - 1];
  return text === undefined || text === '' ? '' : ` about ${JSON.stringify(text.slice(0, 200))}`;
}
