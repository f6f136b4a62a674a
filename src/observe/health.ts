import * as file from '../file/events.ts';
import * as kube from '../kube/events.ts';
import * as portal from '../portal/events.ts';
import * as store from '../store/events.ts';
import { Subscriptions } from '../util/channel.ts';
import {
  type HealthFacts,
  type HealthProblem,
  type Probe,
  type Verdict,
  verdictOf,
} from './verdict.ts';
import type { ServiceSummary } from './service-state.ts';

/** The facts about services and portals that affect the health of a proxy. */
export interface ProxyHealth {
  problems(): readonly HealthProblem[];
  /** Absent: not known. */
  services?(): Promise<ServiceSummary | undefined>;
}

/** Holds the facts and changes them one by one. */
export class Health {
  #facts: HealthFacts = {};
  #proxy: ProxyHealth = { problems: () => [] };
  readonly #wallClock: () => number;

  /** `wallClock`: milliseconds since the epoch. */
  constructor(wallClock: () => number = Date.now) {
    this.#wallClock = wallClock;
  }

  get facts(): HealthFacts {
    return this.#facts;
  }

  /** The verdict now, with the services as they were when they were last read. */
  get verdict(): Verdict {
    const facts = { ...this.#facts, problems: this.#proxy.problems() };
    return verdictOf(facts, this.#wallClock());
  }

  /** Reads the services, then gives the verdict. */
  async read(): Promise<Verdict> {
    const services = await this.#proxy.services?.();
    if (services !== undefined) this.change({ services });
    return this.verdict;
  }

  /**
   * The body of a health page, with the keys of kube-proxy; `failing`: why the answer is 503; `reasons`: everything that
   * is wrong, although the answer may be 200.
   */
  body(verdict: Verdict, probe: Probe) {
    const { firstSyncAt, lastSyncAt, sourceLost, nodeIneligible } = this.#facts;
    const { state, reasons, probes } = verdict;
    const { status, failing } = probes[probe];
    const now = this.#wallClock();
    const current = status === 200 && sourceLost === undefined && firstSyncAt !== undefined;
    const updated = current ? now : lastSyncAt;
    return {
      // When the state was last current; null before the first.
      lastUpdated: updated === undefined ? null : new Date(updated).toISOString(),
      currentTime: new Date(now).toISOString(),
      nodeEligible: nodeIneligible === undefined,
      state,
      ...(failing.length > 0 && { failing }),
      ...(reasons.length > 0 && { reasons }),
    };
  }

  /** Sets where the facts about services and portals are read. */
  readFrom(proxy: ProxyHealth): void {
    this.#proxy = proxy;
  }

  /** Changes some facts; undefined: no longer so. */
  change(part: Partial<HealthFacts>): void {
    this.#facts = { ...this.#facts, ...part };
  }

  /** Something fails, since the first call if it has not been changed to undefined in between. */
  failing<Fact extends 'syncFailing' | 'sourceLost' | 'portalFailing' | 'portalShared'>(
    fact: Fact,
    how: Omit<NonNullable<HealthFacts[Fact]>, 'since'>,
  ): void {
    this.change({ [fact]: { since: this.#facts[fact]?.since ?? this.#wallClock(), ...how } });
  }

  /** A state is about to be applied; either of the two next calls follows. */
  syncStarted(): void {
    this.change({ syncPending: this.#wallClock() });
  }

  synced(): void {
    const now = this.#wallClock();
    const firstSyncAt = this.#facts.firstSyncAt ?? now;
    this.change({ firstSyncAt, lastSyncAt: now, syncFailing: undefined, syncPending: undefined });
  }

  syncFailed(code: string): void {
    this.failing('syncFailing', { code });
    this.change({ syncPending: undefined });
  }

  /** The source has a name for people; `synced`: it has sent a complete change set. */
  sourceNamed(name: string, synced: boolean): void {
    const syncedAt = synced ? this.#wallClock() : this.#facts.source?.syncedAt;
    this.change({ source: { name, syncedAt } });
  }
}

/**
 * Updates health from the events of sources and of portals that write rules or addresses. Returns a function that ends
 * this. Applied states are reported to `Health` directly, by the sink.
 */
export function followEvents(health: Health): () => void {
  const subscriptions = new Subscriptions();
  const fine = (): void => health.change({ sourceLost: undefined });
  const away = ({ error: { code } }: { error: { code: string } }): void =>
    health.failing('sourceLost', { code });
  subscriptions.on(store.sourceConnected, ({ source }) => {
    health.sourceNamed(source, false);
    fine();
  });
  subscriptions.on(store.sourceDisconnected, (event) => {
    health.sourceNamed(event.source, false);
    away(event);
  });
  subscriptions.on(store.sourceSynced, ({ source }) => health.sourceNamed(source, true));
  subscriptions.on(file.fileLoaded, fine);
  subscriptions.on(file.fileRecovered, fine);
  subscriptions.on(file.fileInvalid, away);
  subscriptions.on(file.fileReadFailed, away);
  subscriptions.on(kube.kubeNode, ({ ineligible }) =>
    health.change({ nodeIneligible: ineligible && INELIGIBLE[ineligible] }),
  );
  subscriptions.on(portal.portalWritten, () => health.change({ portalFailing: undefined }));
  subscriptions.on(portal.portalFailed, ({ portal: kind, error: { code, servicePort } }) => {
    // An invalid service port is one of the data path's problems.
    if (servicePort !== undefined) return;
    health.failing('portalFailing', { code, what: kind === 'address' ? ADDRESSES : RULES });
  });
  subscriptions.on(portal.portalShared, ({ error }) => {
    if (error === undefined) health.change({ portalShared: undefined });
    else health.failing('portalShared', { code: error.code });
  });
  return () => subscriptions.end();
}

const INELIGIBLE = {
  tainted: 'the node is tainted ToBeDeletedByClusterAutoscaler',
  deleted: 'the node is being deleted',
} as const;

const RULES = 'the packet rules could not be written';
const ADDRESSES = 'the service addresses could not be put on the interface';
