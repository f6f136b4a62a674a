import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { TlsOptions } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { KpngError, messageOf } from '../errors.ts';
import { typedChannel } from './channel.ts';
import { pause, systemClock, type Clock } from './clock.ts';

/** Paths of PEM files; empty or absent: not given. */
export interface TlsFiles {
  readonly key?: string | undefined;
  readonly crt?: string | undefined;
  readonly ca?: string | undefined;
}

/** Names of the flags with the paths, for error messages. */
export type TlsFlags = Readonly<Record<keyof TlsFiles, string>>;

/** Checked PEM texts: they parse, and the key belongs to the certificate. */
export interface TlsMaterial {
  /** The own certificate with its chain, and its key. */
  readonly identity: { readonly key: string; readonly crt: string } | undefined;
  /** Trusted CAs. Undefined: those of the system. */
  readonly ca: string | undefined;
}

/** The flags of kpng's `local` and `api` sources. */
export const API_CLIENT_TLS_FLAGS = flagsWith('--api-client-tls');
/** The flags of kpng's `to-api` sink. */
export const LISTEN_TLS_FLAGS = flagsWith('--listen-tls');

function flagsWith(prefix: string): TlsFlags {
  return { key: `${prefix}-key`, crt: `${prefix}-crt`, ca: `${prefix}-ca` };
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/**
 * Reads and checks the files of a TLS client or server. Undefined when none is given: no TLS.
 *
 * Fails with KPNG_TLS_FILE, naming flag and file, before anything is dialled or served. (kpng ignores these errors,
 * and then every handshake fails without naming the file.)
 */
export async function readTls(
  { key = '', crt = '', ca = '' }: TlsFiles,
  flags: TlsFlags = API_CLIENT_TLS_FLAGS,
): Promise<TlsMaterial | undefined> {
  if (key === '' && crt === '' && ca === '') return undefined;
  if ((key === '') !== (crt === '')) {
    const [given, other] = key === '' ? [flags.crt, flags.key] : [flags.key, flags.crt];
    throw new KpngError('KPNG_TLS_FILE', `${given} was given without ${other}.`);
  }
  const trusted = ca === '' ? undefined : await readCertificates(flags.ca, ca);
  if (key === '') return { identity: undefined, ca: trusted?.text };
  const own = await readCertificates(flags.crt, crt);
  const text = await readPem(flags.key, key);
  const isEncrypted = text.includes('ENCRYPTED');
  const problem = isEncrypted ? 'encrypted keys are not supported' : 'it holds no private key';
  const parsed = parse(flags.key, key, problem, () => createPrivateKey(text));
  if (!own.first.checkPrivateKey(parsed)) {
    throw wrong(flags.key, key, `it does not belong to the certificate of ${flags.crt} ${crt}`);
  }
  return { identity: { key: text, crt: own.text }, ca: trusted?.text };
}

function wrong(flag: string, path: string, problem: string, cause?: unknown): KpngError {
  return new KpngError('KPNG_TLS_FILE', `${flag} ${path}: ${problem}.`, { cause });
}

function parse<T>(flag: string, path: string, problem: string, make: () => T): T {
  try {
    return make();
  } catch (cause) {
    throw wrong(flag, path, problem, cause);
  }
}

async function readPem(flag: string, path: string): Promise<string> {
  const text = await readFile(path, 'latin1').catch((cause: NodeJS.ErrnoException) => {
    throw wrong(flag, path, `cannot be read (${cause.code ?? cause.message})`, cause);
  });
  if (!text.includes('-----BEGIN ')) throw wrong(flag, path, 'it is not a PEM file');
  return text;
}

async function readCertificates(flag: string, path: string) {
  const text = await readPem(flag, path);
  const [first] = (text.match(CERTIFICATE) ?? []).map((block, i) =>
    parse(flag, path, `certificate ${i + 1} cannot be read`, () => new X509Certificate(block)),
  );
  if (first === undefined) throw wrong(flag, path, 'it holds no certificate');
  return { text, first };
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

/** The own certificate of a server has expired, or is not valid yet. Published once for each certificate. */
export const certificateOutdated = typedChannel<{
  /** KPNG_TLS_FILE; its message names the file and the date. */
  error: KpngError;
}>('tls:certificate-outdated');

/** Interval of the checks of the files. Milliseconds. */
export const TLS_POLL_MS = 10_000;

export interface FollowTlsOptions {
  readonly files: TlsFiles;
  readonly flags: TlsFlags;
  readonly material: TlsMaterial;
  /** The files have changed, and are valid. */
  readonly onChanged: (material: TlsMaterial) => void;
  /** They cannot be used (KPNG_TLS_FILE). Called once for each different problem. */
  readonly onFailed: (error: KpngError) => void;
  readonly clock?: Clock | undefined;
}

/**
 * Re-reads TLS files now and then: mounted secrets are replaced through a link in a parent directory, for which the system
 * sends no event. Files that cannot be used, such as a certificate whose key has not been replaced yet, change nothing.
 * Returns a function that stops this.
 */
export function followTls(options: FollowTlsOptions): () => void {
  const { files, flags, onChanged, onFailed, clock = systemClock } = options;
  let { material } = options;
  const stop = new AbortController();
  const { signal } = stop;
  const follow = async (): Promise<void> => {
    let problem: string | undefined;
    let outdated: string | undefined;
    while (!signal.aborted) {
      const why = material.identity && dateProblem(material.identity.crt, Date.now());
      if (why !== undefined && why !== outdated) {
        const error = new KpngError('KPNG_TLS_FILE', `${flags.crt} ${files.crt}: ${why}`);
        certificateOutdated.publish({ error });
      }
      outdated = why;
      await pause(TLS_POLL_MS, clock, signal);
      try {
        const latter = await readTls(files, flags);
        if (!signal.aborted && latter !== undefined && !isDeepStrictEqual(latter, material)) {
          onChanged(latter);
          material = latter;
        }
        problem = undefined;
      } catch (cause) {
        const isOurs = cause instanceof KpngError;
        const error = isOurs ? cause : new KpngError('KPNG_TLS_FILE', messageOf(cause), { cause });
        if (!signal.aborted && error.message !== problem) onFailed(error);
        problem = error.message;
      }
    }
  };
  void follow();
  return () => stop.abort();
}
