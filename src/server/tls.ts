import { createServer, type Server, type TLSSocket, type TlsOptions } from 'node:tls';
import type { TlsMaterial } from '../util/tls-files.ts';
import { HANDSHAKE_MS } from './limits.ts';

/** How a server is secured. */
export type Security = 'plaintext' | 'tls' | 'mtls';

/** With authorities, clients have to show a certificate that one of them has signed. */
export function securityOf(tls: TlsMaterial | undefined): Security {
  if (tls === undefined) return 'plaintext';
  return tls.ca === undefined ? 'tls' : 'mtls';
}

/** A server whose connections have done their handshake, and are for HTTP/2. */
export function createTlsServer(
  tls: TlsMaterial,
  onSecured: (socket: TLSSocket) => void,
  onFailed: (error: Error, socket: TLSSocket) => void,
): Server {
  const server = createServer(
    { ...contextOptions(tls), ALPNProtocols: ['h2'], handshakeTimeout: HANDSHAKE_MS },
    (socket) => {
      socket.on('error', () => {});
      onSecured(socket);
    },
  );
  server.on('tlsClientError', (error, socket) => onFailed(described(error), socket));
  return server;
}

/** What OpenSSL says of a client without TLS is nothing that people would know it by. */
function described(error: Error & { readonly code?: string }): Error {
  const { code = '' } = error;
  if (!PLAINTEXT.test(code)) return error;
  return new Error(`the client does not speak TLS, it may be one in plaintext (${code})`, {
    cause: error,
  });
}

const PLAINTEXT = /WRONG_VERSION_NUMBER|HTTP_REQUEST|PACKET_LENGTH_TOO_LONG/;

/** From now on handshakes are made with these files; connections that are there stay as they are. */
export function replaceTls(server: Server, tls: TlsMaterial): void {
  server.setSecureContext(contextOptions(tls));
}

function contextOptions({ identity, ca }: TlsMaterial): TlsOptions {
  return {
    minVersion: 'TLSv1.2',
    ...(identity && { key: identity.key, cert: identity.crt }),
    ...(ca !== undefined && { ca, requestCert: true, rejectUnauthorized: true }),
  };
}
