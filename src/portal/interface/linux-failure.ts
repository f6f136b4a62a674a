import { KpngError, messageOf, type ErrorCode } from '../../errors.ts';
import { ExecError } from '../exec.ts';

/** Why `ip` could not do its work at all: `doing` says what that was. */
export function toolFailure(cause: unknown, doing: string): KpngError {
  if (cause instanceof KpngError) return cause;
  if (!(cause instanceof ExecError)) {
    return new KpngError('KPNG_PORTAL_FAILED', `${doing}: ${messageOf(cause)}`, { cause });
  }
  switch (cause.failure) {
    case 'missing':
      return new KpngError(
        'KPNG_PORTAL_TOOL_MISSING',
        `${doing}: there is no ip on the PATH; install the package iproute2, or leave --portal-interface out`,
        { cause },
      );
    case 'not-allowed':
      return new KpngError('KPNG_PORTAL_PERMISSION', `${doing}: ip may not be run`, { cause });
    case 'exit':
      return saidFailure(cause.stderr.trim().split('\n')[0] ?? '', doing, cause);
    case 'timeout':
    case 'output':
    case 'system':
      return new KpngError('KPNG_PORTAL_FAILED', `${doing}: ${cause.message}`, { cause });
    default:
      return cause.failure satisfies never;
  }
}

interface Rule {
  readonly pattern: RegExp;
  readonly code: ErrorCode;
  readonly advice: string;
}

/** ip has no translations, and prints the kernel's error in the words of strerror or of the kernel. */
const RULES: readonly Rule[] = [
  {
    pattern: /Operation not permitted/,
    code: 'KPNG_PORTAL_PERMISSION',
    advice: 'give the process the capability CAP_NET_ADMIN in the network namespace of the host',
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
];

/** What a message of ip means. */
export function saidFailure(said: string, doing: string, cause?: unknown): KpngError {
  const text = `${doing}: ip says ${JSON.stringify(said.slice(0, 200))}`;
  const rule = RULES.find(({ pattern }) => pattern.test(said));
  if (rule === undefined) return new KpngError('KPNG_PORTAL_FAILED', text, { cause });
  return new KpngError(rule.code, `${text}; ${rule.advice}`, { cause });
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
