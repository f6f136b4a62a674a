import { KpngError, type ErrorCode } from '../../errors.ts';
import { toolFailure } from './tool-failure.ts';

/** Why `ip` could not do its work at all: `doing` says what that was. */
export function ipFailure(cause: unknown, doing: string): KpngError {
  return toolFailure(cause, doing, {
    name: 'ip',
    withoutIt: 'install the package iproute2, or leave --portal-interface out',
    said: (error) => saidFailure(error.stderr.trim().split('\n')[0] ?? '', doing, error),
  });
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
