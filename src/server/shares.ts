import { status, type ServerInterceptingCall, type ServerInterceptor } from '@grpc/grpc-js';
import ipaddr from 'ipaddr.js';
import type { ServerHttp2Stream } from 'node:http2';
import { serverLimitReached } from './events.ts';

/**
 * The client whose share a connection counts towards: an address, or its /64 for IPv6, all of which one host may
 * have. A unix socket has no addresses, so each connection has its own share.
 */
export function peerOf(remoteAddress: string | undefined, connection: unknown): unknown {
  if (remoteAddress === undefined) return connection;
  const address = ipaddr.process(remoteAddress.replace(/%.*$/, ''));
  return address instanceof ipaddr.IPv6 ? address.parts.slice(0, 4).join(':') : address.toString();
}

/** The part of the free capacity that one client may use. */
const SHARE = 1 / 4;

/**
 * Divides a limited number among clients: each may use a quarter of what is free, and at least one. So a single
 * client gets at most a fifth, and dozens of greedy ones still leave something for the next.
 */
export class Shares {
  readonly max: number;
  readonly #byPeer = new Map<unknown, number>();
  #used = 0;

  constructor(max: number) {
    this.max = max;
  }

  /** Takes one and returns the function that releases it; undefined: the client has used its share. */
  take(peer: unknown): (() => void) | undefined {
    const has = this.#byPeer.get(peer) ?? 0;
    if (has >= (this.max - this.#used) * SHARE) return undefined;
    this.#byPeer.set(peer, has + 1);
    this.#used += 1;
    return () => {
      this.#used -= 1;
      const left = (this.#byPeer.get(peer) ?? 1) - 1;
      if (left === 0) this.#byPeer.delete(peer);
      else this.#byPeer.set(peer, left);
    };
  }
}

/** Ends a streaming call whose client has used its share; any other one takes a share while it is open. */
export function sharing(shares: Shares): ServerInterceptor {
  return ({ responseStream }, call) => {
    // Of the object that grpc-js makes for each call, which its types hide.
    const { stream } = call as unknown as { readonly stream: ServerHttp2Stream };
    const { session } = stream;
    const peer = peerOf(session?.socket.remoteAddress, session ?? call);
    const release = responseStream ? shares.take(peer) : () => {};
    if (release !== undefined) {
      stream.once('close', release);
    } else {
      const { max } = shares;
      serverLimitReached.publish({ limit: 'max-watchers', value: max, peer: call.getPeer() });
      const details = `this client has reached its share of the limit of ${max} watchers`;
      call.sendStatus({ code: status.RESOURCE_EXHAUSTED, details });
    }
    return call as ServerInterceptingCall;
  };
}
