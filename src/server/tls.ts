import { createServer, type Server, type TLSSocket, type TlsOptions } from 'node:tls';
import { isPlaintext, type TlsMaterial } from '../util/tls-files.ts';
import { HANDSHAKE_MS } from './limits.ts';

/** How a server is secured. */
export type Security = 'plaintext' | 'tls' | 'mtls';

/** With CAs, clients need a certificate signed by one of them. */
export function securityOf(tls: TlsMaterial | undefined): Security {
  if (tls === undefined) return 'plaintext';
  return tls.ca === undefined ? 'tls' : 'mtls';
}

/** A server for HTTP/2 connections with completed handshakes. */
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

/** OpenSSL's error for a client without TLS is hard to recognize. */
function described(error: Error): Error {
  if (!isPlaintext(error)) return error;
  return new Error(
    'the client does not speak TLS, which this server requires; set --api-client-tls-ca, for example',
  );
}

/** New handshakes use these files; existing connections stay as they are. */
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
