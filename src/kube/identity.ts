import { X509Certificate } from 'node:crypto';
import { isObject, text } from './json.ts';

/** The user of the requests, as far as the credentials name it. */
export interface Identity {
  /** Such as `system:serviceaccount:kube-system:kpng`; for people. */
  readonly user: string;
  readonly by: 'token' | 'certificate' | 'password' | 'nothing';
  /** When the credentials expire; milliseconds since the epoch. */
  readonly expiresAt: number | undefined;
}

/** Reads tokens and certificates without verifying them; that is up to the server. */
export function identify(
  authorization: string | undefined,
  certificate: string | Buffer | undefined,
  configured: string,
): Identity {
  const token = /^Bearer (.*)$/.exec(authorization ?? '')?.[1];
  if (token !== undefined) {
    const { sub, exp } = claims(token);
    const expiresAt = typeof exp === 'number' ? exp * 1000 : undefined;
    return { user: text(sub) || configured, by: 'token', expiresAt };
  }
  if (authorization !== undefined)
    return { user: configured, by: 'password', expiresAt: undefined };
  if (certificate === undefined) {
    return { user: 'system:anonymous', by: 'nothing', expiresAt: undefined };
  }
  return fromCertificate(certificate, configured);
}

function claims(token: string): { sub?: unknown; exp?: unknown } {
  const [, payload] = token.split('.');
  if (payload === undefined) return {};
  try {
    const content: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'));
    return isObject(content) ? content : {};
  } catch {
    // Not every token is a JWT.
    return {};
  }
}

function fromCertificate(certificate: string | Buffer, configured: string): Identity {
  try {
    const { subject, validTo } = new X509Certificate(certificate);
    const user = /^CN=(.*)$/m.exec(subject)?.[1] ?? configured;
    return { user, by: 'certificate', expiresAt: Date.parse(validTo) };
  } catch {
    // The TLS handshake reports any problem with it.
    return { user: configured, by: 'certificate', expiresAt: undefined };
  }
}

/** A problem with the credentials' expiry; undefined: none known. */
export function expiryOf({ by, expiresAt }: Identity, now: number): string | undefined {
  if (expiresAt === undefined || Number.isNaN(expiresAt) || expiresAt > now) return undefined;
  const what = by === 'certificate' ? 'client certificate' : 'token';
  return `the ${what} expired at ${new Date(expiresAt).toISOString()}`;
}
