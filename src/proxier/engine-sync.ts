import { listenerIndex } from '../portal/listen-plan.ts';
import type { PortalSpec } from '../portal/portal.ts';
import type { Engine } from '../proxysocket/engine.ts';
import type { EngineChange, ListenSpec, ServicePortSpec } from '../proxysocket/spec.ts';
import type { Clock } from '../util/clock.ts';
import { isEqual, put } from '../util/compare.ts';
import type { ServicePortChange } from './events.ts';

export interface Applied {
  readonly spec: ServicePortSpec;
  readonly portals: readonly PortalSpec[];
}

/** The effect of a batch on one service port. */
export type Step = Omit<ServicePortChange, 'kind'> & {
  readonly kind: ServicePortChange['kind'] | 'endpointsChanged';
};

/** How long a listener stays open after the rules no longer redirect to it. Milliseconds. */
export const LINGER_MS = 2_000;

/** Maximum number of service ports with lingering listeners; beyond it, the oldest close early. */
export const MAX_LINGERING = 1_024;

export interface EngineSyncOptions {
  readonly engine: Engine;
  readonly clock: Clock;
  /** The desired state of a service port; undefined: none. */
  readonly wanted: (name: string) => Applied | undefined;
  /**
   * Whether listeners that are no longer wanted stay open for a while, unless another service port needs their
   * address.
   */
  readonly lingers: boolean;
}

/** Keeps an engine in step with the desired state, with minimal batches. */
export class EngineSync {
  readonly #options: EngineSyncOptions;
  readonly #applied = new Map<string, Applied>();
  /** Service ports of failed batches: their state in the engine is unknown. */
  readonly #uncertain = new Set<string>();
  /** Service ports with surplus listeners, as they are without them. */
  readonly #surplus = new Map<string, Applied | undefined>();
  /** When these close, earliest first; absent: the rules may still redirect to them. */
  readonly #due = new Map<string, number>();

  constructor(options: EngineSyncOptions) {
    this.#options = options;
  }

  /**
   * Applies the differences of these service ports in one batch. Rejects with the engine's error; the next batch sets
   * the changed ones from scratch then. `names`: each once.
   */
  async flush(names: Iterable<string>): Promise<Step[]> {
    const { engine, wanted, lingers } = this.#options;
    const all = this.#surplus.size === 0 ? names : new Set([...names, ...this.#surplus.keys()]);
    const states = Array.from(all, (name) => ({ name, after: wanted(name) }));
    const places = lingers ? placesIn(states) : undefined;
    const closing = this.#closing();
    const planned = states.map(({ name, after }) => {
      const before = this.#applied.get(name);
      const isUncertain = this.#uncertain.has(name);
      const isKept = places !== undefined && !isUncertain && !closing.has(name);
      const now = isKept ? withOld(after, before, places) : after;
      const change = isUncertain ? setOrRemove(name, now) : changeBetween(name, before, now);
      // A service port with only surplus listeners has been reported as removed.
      const reported = this.#surplus.has(name) ? this.#surplus.get(name) : before;
      return { name, after, now, change, step: stepBetween(reported, after, change) };
    });
    const changes = planned.flatMap(({ change }) => change ?? []);
    try {
      if (changes.length > 0) await engine.apply(changes);
    } catch (error) {
      for (const { name, change } of planned) if (change !== undefined) this.#uncertain.add(name);
      throw error;
    }
    for (const { name, after, now } of planned) {
      put(this.#applied, name, now);
      this.#uncertain.delete(name);
      if (now === after) {
        this.#surplus.delete(name);
        this.#due.delete(name);
      } else this.#surplus.set(name, after);
    }
    return planned.flatMap(({ step }) => step ?? []);
  }

  /** Service ports have changed: the wait for their surplus listeners starts over with `closeLater`. */
  keepSurplus(names: Iterable<string>): void {
    for (const name of names) this.#due.delete(name);
  }

  /**
   * Has `flush` close surplus listeners some time after the rules have changed: a redirected connection may still be in
   * its handshake, or retransmit its SYN a second later, and would be refused or reset. Those already waiting keep their
   * time. Returns after how long `flush` has something to close, in milliseconds; undefined: it has nothing.
   */
  closeLater(): number | undefined {
    const now = this.#options.clock.now();
    for (const name of this.#surplus.keys()) {
      if (!this.#due.has(name)) this.#due.set(name, now + LINGER_MS);
    }
    const [first] = this.#due.values();
    if (first === undefined) return undefined;
    return this.#due.size > MAX_LINGERING ? 0 : Math.max(0, first - now);
  }

  /** The service ports whose surplus listeners have waited for long enough, and the oldest ones above the limit. */
  #closing(): ReadonlySet<string> {
    const now = this.#options.clock.now();
    const early = this.#due.size - MAX_LINGERING;
    const due = [...this.#due].filter(([, at], index) => index < early || at <= now);
    return new Set(due.map(([name]) => name));
  }
}

/** Addresses with a fixed port at which service ports are to listen; only one can have each. */
function placesIn(states: readonly { readonly after: Applied | undefined }[]): Set<string> {
  const places = new Set<string>();
  for (const { after } of states) {
    if (after === undefined) continue;
    for (const each of after.spec.listen) if (each.port !== 0) places.add(placeOf(after, each));
  }
  return places;
}

function placeOf({ spec: { protocol } }: Applied, { address, port }: ListenSpec): string {
  return `${protocol} ${address} ${port}`;
}

/** A service port with its previous listeners in addition to the new ones, except those at `places`. */
function withOld(
  after: Applied | undefined,
  before: Applied | undefined,
  places: ReadonlySet<string>,
): Applied | undefined {
  // A changed protocol makes it another service port, whose listeners close with the old one.
  if (before === undefined || (after ?? before).spec.protocol !== before.spec.protocol)
    return after;
  const listen = after?.spec.listen ?? [];
  const indexOf = listenerIndex(listen);
  const isKept = (each: ListenSpec): boolean =>
    indexOf(each) === -1 && !places.has(placeOf(before, each));
  const kept = before.spec.listen.filter(isKept);
  if (kept.length === 0) return after;
  const { spec, portals } = after ?? before;
  return { spec: { ...spec, listen: [...listen, ...kept] }, portals };
}

function setOrRemove(name: string, after: Applied | undefined): EngineChange {
  return after === undefined ? { kind: 'remove', name } : { kind: 'set', spec: after.spec };
}

/** The smallest change from `before` to `after`; undefined: none. */
function changeBetween(
  name: string,
  before: Applied | undefined,
  after: Applied | undefined,
): EngineChange | undefined {
  if (before === undefined && after === undefined) return undefined;
  if (before === undefined || after === undefined) return setOrRemove(name, after);
  const { endpoints: old, ...others } = before.spec;
  const { endpoints, ...updated } = after.spec;
  if (!isEqual(others, updated)) return setOrRemove(name, after);
  return isEqual(old, endpoints) ? undefined : { kind: 'endpoints', name, endpoints };
}

function stepBetween(
  before: Applied | undefined,
  after: Applied | undefined,
  change: EngineChange | undefined,
): Step | undefined {
  const subject = after ?? before;
  if (subject === undefined) return undefined;
  const { name, protocol } = subject.spec;
  const step = { servicePort: name, protocol, portals: subject.portals };
  if (before === undefined) return { kind: 'added', ...step };
  if (after === undefined) return { kind: 'removed', ...step };
  if (change?.kind === 'endpoints') return { kind: 'endpointsChanged', ...step };
  const isSame = change === undefined && isEqual(before.portals, after.portals);
  return isSame ? undefined : { kind: 'changed', ...step };
}
