import type { ExecError } from '../exec.ts';
import type { RuleError } from '../rules/store.ts';
import { toolFailure, type Saying } from '../rules/tool-failure.ts';

/**
 * nft has no translations (it never sets a locale) and prints the kernel's error in the words of
 * strerror, so these texts are the same everywhere.
 */
const SAYINGS: readonly Saying[] = [
  {
    pattern: /Operation not permitted|Permission denied|you must be root/,
    code: 'KPNG_PORTAL_PERMISSION',
    blame: 'host',
    advice: 'give the process the capability CAP_NET_ADMIN in the network namespace of the host',
  },
  {
    pattern:
      /Unable to initialize Netlink socket|Protocol not supported|Address family not supported/,
    code: 'KPNG_PORTAL_UNSUPPORTED',
    blame: 'host',
    advice: 'the kernel has no nf_tables; use another --portal',
  },
  {
    pattern: /Operation not supported|syntax error|unknown identifier|Invalid argument/,
    code: 'KPNG_PORTAL_UNSUPPORTED',
    blame: 'content',
    advice: 'nft 0.9.7 and Linux 5.9 or later are needed',
  },
];

/** What a failed run of nft means, with what was being done to the table. */
export function nftFailure(cause: unknown, doing: string): RuleError {
  return toolFailure(cause, doing, {
    program: 'nft',
    debian: 'nftables',
    sayings: SAYINGS,
    said: firstErrors,
  });
}

/** nft prints each error with the line it is about, which may be as long as the script. */
function firstErrors({ stderr }: ExecError): string {
  const lines = stderr
    .split('\n')
    .filter((line) => line.includes('Error') || line.includes('not '));
  const [first = stderr.trim().split('\n')[0] ?? ''] = lines;
  const more = lines.length > 1 ? ` (and ${lines.length - 1} more)` : '';
  return `${JSON.stringify(first.trim().slice(0, 200))}${more}`;
}
