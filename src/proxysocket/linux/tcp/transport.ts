import type { Clock } from '../../../util/clock.ts';
import type { Listening } from '../../core/listener.ts';
import type { EngineContext } from '../../core/service-port.ts';
import type { AcceptOwner, TcpTransport } from '../../tcp/transport.ts';
import { INTEREST, type Loop, type Pollable } from '../loop.ts';
import { closeListener, openListener, watchListener } from '../open-listener.ts';
import * as k from '../sys/abi.ts';
import { RelayMemory } from './memory.ts';
import { LinuxTcpClient } from './relay.ts';

/** Connections accepted before other descriptors are served. */
const ACCEPTS_AT_ONCE = 64;
/** How long a listener pauses if there is no descriptor for its clients, which wait meanwhile. Milliseconds. */
const PAUSE_MS = 100;

/** Errors of a connection that failed before it was accepted; others wait behind it. */
const ONE_CLIENT: ReadonlySet<number> = new Set([
  k.EINTR,
  k.EPERM,
  k.EPROTO,
  k.ECONNABORTED,
  k.ENETDOWN,
  k.ENETUNREACH,
  k.EHOSTDOWN,
  k.EHOSTUNREACH,
]);

export function linuxTcp(loop: Loop, { limits, clock, descriptors }: EngineContext): TcpTransport {
  const memory = new RelayMemory(loop.sys, limits.bulkBufferBudget, descriptors);
  return {
    listen: async (spec, owner) =>
      new ListeningSocket(
        { loop, clock, memory },
        openListener(loop.sys, 'TCP', spec, limits),
        owner,
      ),
  };
}

interface TcpParts {
  readonly loop: Loop;
  readonly clock: Clock;
  readonly memory: RelayMemory;
}

class ListeningSocket implements Listening, Pollable {
  readonly boundPort: number;
  readonly #fd: number;
  readonly #parts: TcpParts;
  readonly #owner: AcceptOwner;
  #state: 'listening' | 'paused' | 'closed' = 'listening';
  /** There is no descriptor for the next client, which is counted only once. */
  #isExhausted = false;

  constructor(parts: TcpParts, fd: number, owner: AcceptOwner) {
    this.#parts = parts;
    this.#fd = fd;
    this.#owner = owner;
    this.boundPort = watchListener(parts.loop, fd, this);
  }

  ready(): void {
    const { sys } = this.#parts.loop;
    for (let count = 0; count < ACCEPTS_AT_ONCE && this.#state === 'listening'; count += 1) {
      const fd = sys.accept(this.#fd);
      if (fd < 0 && fd !== -k.EAGAIN) {
        if (!ONE_CLIENT.has(-fd)) this.#exhausted();
        continue;
      }
      this.#isExhausted = false;
      if (fd < 0) return;
      const { loop, memory } = this.#parts;
      this.#owner.accepted(new LinuxTcpClient(loop, memory, fd));
    }
  }

  /** One client was lost; the listener keeps accepting. */
  failed(): void {}

  async close(): Promise<void> {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    closeListener(this.#parts.loop, this.#fd);
  }

  #exhausted(): void {
    if (!this.#isExhausted) this.#owner.acceptFailed();
    this.#isExhausted = true;
    this.#state = 'paused';
    this.#parts.loop.unwatch(this.#fd);
    this.#resumeLater();
  }

  #resumeLater(): void {
    this.#parts.clock.setTimer(PAUSE_MS, () => {
      if (this.#state !== 'paused') return;
      if (this.#parts.loop.watch(this.#fd, this, INTEREST.readable) < 0) this.#resumeLater();
      else this.#state = 'listening';
    });
  }
}
