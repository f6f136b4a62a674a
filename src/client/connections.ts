/**
 * The sockets below a gRPC channel.
 *
 * Works around three flaws of grpc-js that no option avoids: it abandons a handshake that hangs without closing its
 * socket, so each retry would leak a descriptor; it has no TCP keepalive; and for an IP address as target it asks
 * Node for a TLS server name that Node (since 26) refuses. Custom credentials give access to each socket.
 */
import { isIP, type Socket } from 'node:net';
import type { Target } from './target.ts';
import type { TlsMaterial } from '../util/tls-files.ts';

/**
 * Idle time before TCP probes the peer. After ten unanswered probes, a second apart, the connection is lost, so a
 * dead host is noticed within 40 s. The probes are below HTTP/2: a gRPC server does not count them.
 */
const TCP_KEEPALIVE_MS = 30_000;

export async function trackConnections(target: Target, tls: TlsMaterial | undefined) {
  const { ChannelCredentials } = await import('@grpc/grpc-js');
  const secure = tls && (await tlsUpgrade(target.host, tls));
  const sockets = new Set<Socket>();
  let destroyed = false;
  let reached = false;

  const connect = async (socket: Socket): Promise<{ socket: Socket; secure: boolean }> => {
    reached = true;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.setKeepAlive(true, TCP_KEEPALIVE_MS);
    if (destroyed) socket.destroy();
    return secure ? { socket: await secure(socket), secure: true } : { socket, secure: false };
  };

  const credentials = ChannelCredentials.createInsecure();
  const connector = credentials._createSecureConnector.bind(credentials);
  credentials._createSecureConnector = (...args) => ({ ...connector(...args), connect });

  return {
    credentials,
    /** Whether a TCP connection was established. */
    get reached(): boolean {
      return reached;
    },
    /** Destroys every socket of the channel, including later ones. Idempotent. */
    destroy(): void {
      destroyed = true;
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** A function that does the TLS handshake over a connected socket. */
async function tlsUpgrade(
  host: string,
  tls: TlsMaterial,
): Promise<(socket: Socket) => Promise<Socket>> {
  const { connect, createSecureContext, getCACertificates } = await import('node:tls');
  const secureContext = createSecureContext({
    minVersion: 'TLSv1.2',
    // Trust the system's CAs, as Go does; Node's default is only its own list.
    ca: tls.ca ?? [...getCACertificates('default'), ...getCACertificates('system')],
    ...(tls.identity && { key: tls.identity.key, cert: tls.identity.crt }),
  });
  // A server name is a DNS name (RFC 6066). The certificate is checked against the address anyway.
  const peer = isIP(host) === 0 ? { host, servername: host } : { host };
  return (socket) => {
    const { promise, resolve, reject } = Promise.withResolvers<Socket>();
    const secured = connect({ socket, secureContext, ALPNProtocols: ['h2'], ...peer });
    secured.once('secureConnect', () => resolve(secured));
    secured.once('error', reject);
    secured.once('close', () => reject(new Error('closed during the TLS handshake')));
    return promise;
  };
}
