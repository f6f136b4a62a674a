/**
 * The sockets below a gRPC channel.
 *
 * grpc-js does three things with them that are wrong here, and has no option against: it abandons a
 * handshake that hangs without closing its socket, so each retry would lose a descriptor; it has no
 * TCP keepalive; and for a target that is an IP address it asks Node for a TLS server name that Node
 * (since 26) refuses. Its credentials are the place where a socket passes through our hands.
 */
import type { CallCredentials, ChannelCredentials } from '@grpc/grpc-js';
import { isIP, type Socket } from 'node:net';
import type { SecureContext } from 'node:tls';
import type { Target } from './target.ts';
import type { TlsMaterial } from '../util/tls-files.ts';

export interface Connections {
  readonly credentials: ChannelCredentials;
  /** Whether a TCP connection was established. */
  readonly reached: boolean;
  /** Cuts every socket of the channel, and those that still come. Idempotent. */
  destroy(): void;
}

/**
 * Time without a byte until TCP asks whether the other side is there. It takes ten answers missing, a
 * second apart, so a host that is gone is noticed within 40 s. These questions are below HTTP/2: a
 * gRPC server does not count them.
 */
const TCP_KEEPALIVE_MS = 30_000;

export async function trackConnections(
  target: Target,
  tls: TlsMaterial | undefined,
): Promise<Connections> {
  const { CallCredentials: NoCall, ChannelCredentials } = await import('@grpc/grpc-js');
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

  class TrackingCredentials extends ChannelCredentials {
    _isSecure(): boolean {
      return secure !== undefined;
    }
    _equals(other: ChannelCredentials): boolean {
      return other === this;
    }
    _createSecureConnector(_target: unknown, _options: unknown, call?: CallCredentials) {
      const callCredentials = call ?? NoCall.createEmpty();
      return {
        connect,
        waitForReady: () => Promise.resolve(),
        getCallCredentials: () => callCredentials,
        destroy: () => {},
      };
    }
  }

  return {
    credentials: new TrackingCredentials(),
    get reached() {
      return reached;
    },
    destroy() {
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
  const { connect } = await import('node:tls');
  const secureContext = await createContext(tls);
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

async function createContext({ ca, identity }: TlsMaterial): Promise<SecureContext> {
  const { createSecureContext, getCACertificates } = await import('node:tls');
  return createSecureContext({
    minVersion: 'TLSv1.2',
    // Like Go, trust the system's authorities; Node's default is only its own list.
    ca: ca ?? [...getCACertificates('default'), ...getCACertificates('system')],
    ...(identity && { key: identity.key, cert: identity.crt }),
  });
}
