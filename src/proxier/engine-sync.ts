import type { PortalSpec } from '../portal/portal.ts';
import type { Engine } from '../proxysocket/engine.ts';
import type { EngineChange, ListenSpec, Protocol, ServicePortSpec } from '../proxysocket/spec.ts';
import { isEqual } from '../util/compare.ts';

export interface Applied {
  readonly spec: ServicePortSpec;
  readonly portals: readonly PortalSpec[];
}

/** The effect of a batch on one service port. */
export interface Step {
  readonly kind: 'added' | 'changed' | 'removed' | 'endpointsChanged';
  readonly servicePort: string;
  readonly protocol: Protocol;
  readonly portals: readonly PortalSpec[];
}

/** Keeps an engine in step with the desired state, with minimal batches. */
export class EngineSync {
  readonly #engine: Engine;
  readonly #wanted: (name: string) => Applied | undefined;
  readonly #keepsListeners: boolean;
  readonly #applied = new Map<string, Applied>();
  /** Service ports of failed batches: their state in the engine is unknown. */
  readonly #uncertain = new Set<string>();
  /** Service ports with surplus listeners, as they are without them. */
  readonly #surplus = new Map<string, Applied | undefined>();

  /**
   * `wanted`: the desired state of a service port; undefined: none. `keepsListeners`: whether listeners that are no
   * longer wanted stay open, as `surplus` until `closeSurplus`, unless another service port needs their address.
   */
  constructor(
    engine: Engine,
    wanted: (name: string) => Applied | undefined,
    keepsListeners: boolean,
  ) {
    this.#engine = engine;
    this.#wanted = wanted;
    this.#keepsListeners = keepsListeners;
  }

  has(name: string): boolean {
    return this.#applied.has(name);
  }

  /**
   * Applies the differences of these service ports in one batch. Rejects with the engine's error; the next batch sets
   * the changed ones from scratch then.
   */
  flush(names: Iterable<string>): Promise<Step[]> {
    const all = this.#surplus.size === 0 ? names : new Set([...names, ...this.surplus()]);
    return this.#flush(all, this.#keepsListeners);
  }

  surplus(): Iterable<string> {
    return this.#surplus.keys();
  }

  /** Closes the surplus listeners of these service ports. Rejects as `flush` does. */
  async closeSurplus(names: readonly string[]): Promise<void> {
    await this.#flush(
      names.filter((name) => this.#surplus.has(name)),
      false,
    );
  }

  /** `names`: each once. */
  async #flush(names: Iterable<string>, keepsListeners: boolean): Promise<Step[]> {
    const states = Array.from(names, (name) => ({ name, after: this.#wanted(name) }));
    const owners = keepsListeners ? ownersIn(states) : undefined;
    const planned = states.map(({ name, after }) => {
      const before = this.#applied.get(name);
      const isUncertain = this.#uncertain.has(name);
      const now = owners === undefined || isUncertain ? after : withOld(after, before, owners);
      const change = isUncertain ? setOrRemove(name, now) : changeBetween(name, before, now);
      // A service port with only surplus listeners has been reported as removed.
      const reported = this.#surplus.has(name) ? this.#surplus.get(name) : before;
      return { name, after, now, change, step: stepBetween(reported, after, change) };
    });
    const changes = planned.flatMap(({ change }) => change ?? []);
    try {
      if (changes.length > 0) await this.#engine.apply(changes);
    } catch (error) {
      for (const { name, change } of planned) if (change !== undefined) this.#uncertain.add(name);
      throw error;
    }
    for (const { name, after, now } of planned) {
      if (now === undefined) this.#applied.delete(name);
      else this.#applied.set(name, now);
      this.#uncertain.delete(name);
      if (now === after) this.#surplus.delete(name);
      else this.#surplus.set(name, after);
    }
    return planned.flatMap(({ step }) => step ?? []);
  }
}

type Owners = ReadonlyMap<string, string>;

/** The service ports that are to listen at addresses with a fixed port; each can have only one. */
function ownersIn(states: readonly { readonly after: Applied | undefined }[]): Owners {
  const owners = new Map<string, string>();
  for (const { after } of states) {
    if (after === undefined) continue;
    const { name, protocol, listen } = after.spec;
    for (const each of listen) if (each.port !== 0) owners.set(portKey(protocol, each), name);
  }
  return owners;
}

function portKey(protocol: Protocol, { address, port }: ListenSpec): string {
  return `${protocol} ${address} ${port}`;
}

/** A service port with its previous listeners in addition to the new ones, except those that others want. */
function withOld(
  after: Applied | undefined,
  before: Applied | undefined,
  owners: Owners,
): Applied | undefined {
  // A changed protocol makes it another service port, whose listeners close with the old one.
  if (before === undefined || (after ?? before).spec.protocol !== before.spec.protocol)
    return after;
  const { name, protocol, listen: old } = before.spec;
  const listen = after?.spec.listen ?? [];
  const isWanted = isAmong(listen);
  const kept = old.filter(
    (each) => !isWanted(each) && (owners.get(portKey(protocol, each)) ?? name) === name,
  );
  if (kept.length === 0) return after;
  const { spec, portals } = after ?? before;
  return { spec: { ...spec, listen: [...listen, ...kept] }, portals };
}

/** Whether one of the listeners has the address, port and kind of traffic of another: the engine treats them as the same. */
export function isAmong(all: readonly ListenSpec[]): (one: ListenSpec) => boolean {
  const keys = new Set(all.map(listenerKey));
  return (one) => keys.has(listenerKey(one));
}

function listenerKey({ address, port, traffic }: ListenSpec): string {
  return `${address} ${port} ${traffic}`;
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
