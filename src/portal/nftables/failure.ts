import { messageOf, type ErrorCode } from '../../errors.ts';
import { ExecError } from '../exec.ts';
import { RuleError, type Blame } from '../rules/store.ts';

interface Rule {
  readonly pattern: RegExp;
  readonly code: ErrorCode;
  readonly blame: Blame;
  readonly advice: string;
}

/**
 * nft has no translations (it never sets a locale) and prints the kernel's error in the words of
 * strerror, so these texts are the same everywhere.
 */
const RULES: readonly Rule[] = [
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
  if (!(cause instanceof ExecError)) {
    return failure('host', 'KPNG_PORTAL_FAILED', `${doing}: ${messageOf(cause)}`, cause);
  }
  switch (cause.failure) {
    case 'missing':
      return failure(
        'host',
        'KPNG_PORTAL_TOOL_MISSING',
        `${doing}: there is no nft on the PATH; install the package nftables, or use another --portal`,
        cause,
      );
    case 'not-allowed':
      return failure('host', 'KPNG_PORTAL_PERMISSION', `${doing}: nft may not be run`, cause);
    case 'exit':
      break;
    case 'timeout':
    case 'output':
    case 'system':
      return failure('host', 'KPNG_PORTAL_FAILED', `${doing}: ${cause.message}`, cause);
  }
  const said = firstErrors(cause.stderr);
  const rule = RULES.find(({ pattern }) => pattern.test(cause.stderr));
  if (rule === undefined)
    return failure('content', 'KPNG_PORTAL_FAILED', `${doing}: ${said}`, cause);
  return failure(rule.blame, rule.code, `${doing}: ${said}; ${rule.advice}`, cause);
}

function failure(blame: Blame, code: ErrorCode, message: string, cause: unknown): RuleError {
  return new RuleError(blame, code, message, { cause });
}

/** nft prints each error with the line it is about, which may be as long as the script. */
function firstErrors(stderr: string): string {
  const lines = stderr
    .split('\n')
    .filter((line) => line.includes('Error') || line.includes('not '));
  const [first = stderr.trim().split('\n')[0] ?? ''] = lines;
  const more = lines.length > 1 ? ` (and ${lines.length - 1} more)` : '';
  return `nft says ${JSON.stringify(first.trim().slice(0, 200))}${more}`;
}
