import { createPrivateKey, X509Certificate, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { TlsOptions } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { KpngError, messageOf } from '../errors.ts';
import { typedChannel } from './channel.ts';
import { systemClock, type Clock, type Timer } from './clock.ts';
import { statusOf } from './read-content.ts';

/** Paths of PEM files; empty or absent: not given. */
export interface TlsFiles {
  readonly key?: string | undefined;
  readonly crt?: string | undefined;
  readonly ca?: string | undefined;
}

/** Names of the flags with the paths, for error messages. */
export interface TlsFlags {
  readonly key: string;
  readonly crt: string;
  readonly ca: string;
}

/** Checked PEM texts: they parse, and the key belongs to the certificate. */
export interface TlsMaterial {
  /** The own certificate with its chain, and its key. */
  readonly identity: { readonly key: string; readonly crt: string } | undefined;
  /** Trusted CAs. Undefined: those of the system. */
  readonly ca: string | undefined;
}

/** The flags of kpng's `local` and `api` sources. */
export const API_CLIENT_TLS_FLAGS: TlsFlags = {
  key: '--api-client-tls-key',
  crt: '--api-client-tls-crt',
  ca: '--api-client-tls-ca',
};

/** The flags of kpng's `to-api` sink. */
export const LISTEN_TLS_FLAGS: TlsFlags = {
  key: '--listen-tls-key',
  crt: '--listen-tls-crt',
  ca: '--listen-tls-ca',
};

/**
 * Reads and checks the files of a TLS client or server. Undefined when none is given: no TLS.
 *
 * Fails with KPNG_TLS_FILE, naming flag and file, before anything is dialled or served. (kpng ignores these errors,
 * and then every handshake fails without naming the file.)
 */
export async function readTls(
  files: TlsFiles,
  flags: TlsFlags = API_CLIENT_TLS_FLAGS,
): Promise<TlsMaterial | undefined> {
  const { key: keyPath = '', crt: crtPath = '', ca: caPath = '' } = files;
  if (keyPath === '' && crtPath === '' && caPath === '') return undefined;
  if ((keyPath === '') !== (crtPath === '')) {
    const [given, other] = keyPath === '' ? [flags.crt, flags.key] : [flags.key, flags.crt];
    throw new KpngError('KPNG_TLS_FILE', `${given} was given without ${other}.`);
  }
  const ca = caPath === '' ? undefined : await readCertificates(flags.ca, caPath);
  if (keyPath === '') return { identity: undefined, ca };
  const crt = await readCertificates(flags.crt, crtPath);
  const key = await readPem(flags.key, keyPath);
  checkPair(key, crt, keyPath, crtPath, flags);
  return { identity: { key, crt }, ca };
}

function wrong(flag: string, path: string, problem: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_TLS_FILE', `${flag} ${path}: ${problem}.`, { cause });
}

async function readPem(flag: string, path: string): Promise<string> {
  let text: string;
  try {
    text = await readFile(path, 'latin1');
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : String(cause);
    throw wrong(flag, path, `cannot be read (${code})`, cause);
  }
  if (!text.includes('-----BEGIN ')) throw wrong(flag, path, 'it is not a PEM file');
  return text;
}

/** Why peers refuse a certificate by its dates, at a time in milliseconds since 1970; undefined: they do not. */
export function dateProblem(crt: string, now: number): string | undefined {
  const { validFrom, validTo } = new X509Certificate(crt);
  const date = (text: string): string => new Date(text).toISOString();
  if (Date.parse(validTo) < now) return `the certificate expired at ${date(validTo)}; renew it`;
  if (Date.parse(validFrom) <= now) return undefined;
  return `the certificate is not valid before ${date(validFrom)}; check the clock of this host`;
}

/** The options of a TLS server. With CAs, clients need a certificate signed by one of them. */
export function serverContext({ identity, ca }: TlsMaterial): TlsOptions {
  return {
    minVersion: 'TLSv1.2',
    ...(identity && { key: identity.key, cert: identity.crt }),
    ...(ca !== undefined && { ca, requestCert: true, rejectUnauthorized: true }),
  };
}

/** Whether a handshake failed because the client sent something other than TLS. */
export function isPlaintext(error: Error & { readonly code?: string }): boolean {
  return /WRONG_VERSION_NUMBER|HTTP_REQUEST|PACKET_LENGTH_TOO_LONG/.test(error.code ?? '');
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

async function readCertificates(flag: string, path: string): Promise<string> {
  const text = await readPem(flag, path);
  const blocks = text.match(CERTIFICATE) ?? [];
  if (blocks.length === 0) throw wrong(flag, path, 'it holds no certificate');
  for (const [i, block] of blocks.entries()) parseCertificate(flag, path, block, i + 1);
  return text;
}

function parseCertificate(flag: string, path: string, pem: string, n: number): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch (cause) {
    throw wrong(flag, path, `certificate ${n} cannot be read`, cause);
  }
}

function checkPair(key: string, crt: string, keyPath: string, crtPath: string, flags: TlsFlags) {
  let parsed: KeyObject;
  try {
    parsed = createPrivateKey(key);
  } catch (cause) {
    const encrypted = key.includes('ENCRYPTED');
    const problem = encrypted ? 'encrypted keys are not supported' : 'it holds no private key';
    throw wrong(flags.key, keyPath, problem, cause);
  }
  const leaf = parseCertificate(flags.crt, crtPath, crt.match(CERTIFICATE)?.[0] ?? crt, 1);
  if (!leaf.checkPrivateKey(parsed)) {
    const problem = `it does not belong to the certificate of ${flags.crt} ${crtPath}`;
    throw wrong(flags.key, keyPath, problem);
  }
}

/** The own certificate of a server has expired, or is not valid yet. Published once for each certificate. */
export interface CertificateOutdated {
  /** KPNG_TLS_FILE; its message names the file and the date. */
  error: KpngError;
}

export const certificateOutdated = typedChannel<CertificateOutdated>('tls:certificate-outdated');

/** Interval of the checks of the files. Milliseconds. */
export const TLS_POLL_MS = 10_000;

export interface FollowTlsOptions {
  readonly files: TlsFiles;
  readonly flags: TlsFlags;
  readonly material: TlsMaterial;
  /** The files have changed, and are valid. */
  readonly onChanged: (material: TlsMaterial) => void;
  /** They have changed, and cannot be used (KPNG_TLS_FILE). Called once for each different problem. */
  readonly onFailed: (error: KpngError) => void;
  readonly clock?: Clock | undefined;
}

/**
 * Polls TLS files for changes and re-reads them. Files that cannot be used, such as a certificate whose key has not
 * been replaced yet, change nothing and are read again at the next check. Returns a function that stops this.
 *
 * Checks time, size and inode of the files, since mounted secrets are replaced through a link in a parent directory,
 * for which the system sends no event.
 */
export function followTls(options: FollowTlsOptions): () => void {
  const { files, flags, onChanged, onFailed } = options;
  const clock = options.clock ?? systemClock;
  let material = options.material;
  let seen: string | undefined;
  let problem: string | undefined;
  let outdated: string | undefined;
  let ended = false;
  let timer: Timer | undefined;

  const checkDates = (): void => {
    const why = material.identity && dateProblem(material.identity.crt, Date.now());
    if (why === outdated) return;
    outdated = why;
    if (why === undefined) return;
    const error = new KpngError('KPNG_TLS_FILE', `${flags.crt} ${files.crt}: ${why}`);
    certificateOutdated.publish({ error });
  };
  const check = async (): Promise<void> => {
    const now = await signatureOf(files);
    if (now === seen && problem === undefined) return;
    seen = now;
    try {
      const latter = await readTls(files, flags);
      const changed = !ended && latter !== undefined && !isDeepStrictEqual(latter, material);
      if (changed) {
        onChanged(latter);
        material = latter;
      }
      problem = undefined;
    } catch (cause) {
      const error =
        cause instanceof KpngError
          ? cause
          : new KpngError('KPNG_TLS_FILE', messageOf(cause), { cause });
      if (ended || error.message === problem) return;
      problem = error.message;
      onFailed(error);
    }
  };
  const schedule = (): void => {
    if (ended) return;
    checkDates();
    timer = clock.setTimer(TLS_POLL_MS, () => void check().finally(schedule));
  };
  schedule();
  return () => {
    ended = true;
    timer?.cancel();
  };
}

/** Unchanged as long as none of the files is replaced or written to. */
async function signatureOf({ key, crt, ca }: TlsFiles): Promise<string> {
  const each = [key, crt, ca].map(async (path = '') => (path === '' ? '' : statusOf(path)));
  return (await Promise.all(each)).join(' ');
}
