import { X509Certificate } from 'node:crypto';
import { createServer, type Server, type TLSSocket } from 'node:tls';
import type { Clock } from '../util/clock.ts';
import { peerText } from '../util/host-port.ts';
import {
  followTls,
  isPlaintext,
  LISTEN_TLS_FLAGS,
  serverContext,
  type TlsFiles,
  type TlsMaterial,
} from '../util/tls-files.ts';
import { handshakeFailed, tlsFilesChanged, type Security } from './events.ts';
import { HANDSHAKE_MS } from './limits.ts';

/** With CAs, clients need a certificate signed by one of them. */
export function securityOf(tls: TlsMaterial | undefined): Security {
  if (tls === undefined) return 'plaintext';
  return tls.ca === undefined ? 'tls' : 'mtls';
}

/** A server for HTTP/2 connections with completed handshakes. Publishes failed ones. */
export function createTlsServer(tls: TlsMaterial, onSecured: (socket: TLSSocket) => void): Server {
  const server = createServer(
    { ...serverContext(tls), ALPNProtocols: ['h2'], handshakeTimeout: HANDSHAKE_MS },
    (socket) => {
      socket.on('error', () => {});
      onSecured(socket);
    },
  );
  server.on('tlsClientError', (error, socket) =>
    handshakeFailed.publish({ error: described(error), peer: peerText(socket) }),
  );
  return server;
}

/** OpenSSL's error for a client without TLS is hard to recognize. */
function described(error: Error): Error {
  if (!isPlaintext(error)) return error;
  return new Error(
    'the client does not speak TLS, which this server requires; set --api-client-tls-ca, for example',
  );
}

/**
 * Reloads and reports changed TLS files, for new connections. Invalid files change nothing. Returns a function that
 * ends this.
 */
export function followTlsFiles(
  server: { replaceTls(tls: TlsMaterial): void },
  files: TlsFiles,
  material: TlsMaterial,
  clock?: Clock,
): () => void {
  return followTls({
    files,
    flags: LISTEN_TLS_FLAGS,
    material,
    clock,
    onChanged(material) {
      server.replaceTls(material);
      tlsFilesChanged.publish({ error: undefined, validUntil: validUntil(material) });
    },
    onFailed: (error) => tlsFilesChanged.publish({ error, validUntil: undefined }),
  });
}

function validUntil({ identity }: TlsMaterial): number | undefined {
  if (identity === undefined) return undefined;
  return Date.parse(new X509Certificate(identity.crt).validTo);
}
