import type { Test } from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import type { KpngError } from '../../src/errors.ts';
import { kubeFailed, kubeListed, type KubeFailed, type KubeListed } from '../../src/kube/events.ts';
import { DEFAULT_KUBE_LIMITS, type KubeLimits } from '../../src/kube/limits.ts';
import { DEFAULT_NODE_LABELS, type Selection } from '../../src/kube/resource.ts';
import { KubeSource, type KubeSourceOptions } from '../../src/kube/source.ts';
import { opInvalid } from '../../src/store/events.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { FakeApi, type FakeApiOptions } from './fake-api/server.ts';
import { FakeClock } from './fake-clock.ts';
import { collect } from './sockets.ts';
import { until } from './until.ts';

export const SELECTION: Selection = {
  proxyName: '',
  serviceLabels: [],
  serviceAnnotations: [],
  nodeLabels: DEFAULT_NODE_LABELS,
  nodeAnnotations: [],
};

export interface KubeRigOptions {
  /** Of the server. */
  readonly api?: FakeApiOptions;
  /** What is there before the source starts. */
  readonly prepare?: (api: FakeApi) => void;
  readonly selection?: Partial<Selection>;
  readonly limits?: Partial<KubeLimits>;
  /** Path of a kubeconfig file. Default: the server's URL and nothing else. */
  readonly kubeconfig?: string;
  readonly source?: Partial<KubeSourceOptions>;
}

export interface KubeRig {
  readonly api: FakeApi;
  readonly store: GlobalStore;
  readonly source: KubeSource;
  /** Decides about waits and time limits. Their jitter is off: 1000 ms, 1600 ms, ... */
  readonly clock: FakeClock;
  readonly failures: KubeFailed[];
  readonly lists: KubeListed[];
  readonly invalid: KpngError[];
  readonly stop: AbortController;
  /** The source's run. */
  readonly done: Promise<void>;
  /** Waits until each resource is being watched and the state is complete. */
  readonly watching: () => Promise<void>;
  /** Waits until the state, by `describeState`, is this. */
  readonly settled: (...lines: string[]) => Promise<void>;
  /** Lets waits pass until a condition holds. */
  readonly advanceUntil: (condition: () => boolean, stepMs?: number) => Promise<void>;
}

/** A fake API server and a source that watches it. Both end with the test. */
export async function startKubeRig(t: Test, options: KubeRigOptions = {}): Promise<KubeRig> {
  const api = new FakeApi(options.api ?? {});
  await api.start();
  options.prepare?.(api);
  const clock = new FakeClock();
  const store = new GlobalStore({ hasher: await loadHasher() });
  const failures = collect(t, kubeFailed);
  const lists = collect(t, kubeListed);
  const invalid: KpngError[] = [];
  const onInvalid = ({ error }: { error: KpngError }): void => void invalid.push(error);
  opInvalid.subscribe(onInvalid);
  const kubeconfig = options.kubeconfig ?? '';
  const source = await KubeSource.open({
    config: { kubeconfig, server: kubeconfig === '' ? api.url : '', env: {} },
    selection: { ...SELECTION, ...options.selection },
    userAgent: 'test',
    limits: { ...DEFAULT_KUBE_LIMITS, ...options.limits },
    clock,
    random: () => 0.5,
    ...options.source,
  });
  const stop = new AbortController();
  const done = source.feed(store, stop.signal);
  // A rejection is for the test to look at; it may do so late.
  done.catch(() => {});
  t.teardown(async () => {
    stop.abort();
    await done.catch(() => {});
    opInvalid.unsubscribe(onInvalid);
    await api.stop();
  });
  return {
    api,
    store,
    source,
    clock,
    failures,
    lists,
    invalid,
    stop,
    done,
    watching: () =>
      until(
        () => store.synced && source.snapshot().watching.length === 3 && api.watches().length === 3,
      ),
    settled: async (...lines) => {
      const wanted = lines.join('\n');
      const read = (): string => describeState(store).join('\n');
      await until(() => read() === wanted).catch(() => undefined);
      t.equal(read(), wanted);
    },
    advanceUntil: async (condition, stepMs = 250) => {
      const isMet = (): boolean => {
        if (condition()) return true;
        clock.advance(stepMs);
        return false;
      };
      await until(isMet);
    },
  };
}

/** A state in short: `demo/web 10.96.0.10: 10.1.0.5@node-a` and `node node-a north`. */
export function describeState(store: GlobalStore): string[] {
  const services = store.services.cells().flatMap(({ value: record }) => {
    if (record?.service === undefined) return [];
    const { service } = record.service;
    const ips = service.ips?.clusterIPs;
    const endpoints = record.endpoints.map(({ info }) => {
      const addresses = [...(info.endpoint?.ips?.v4 ?? []), ...(info.endpoint?.ips?.v6 ?? [])];
      const ready = info.conditions?.ready === false ? '!' : '';
      return `${ready}${addresses.join(',')}@${info.topology?.node}`;
    });
    const name = `${record.service.key} ${[...(ips?.v4 ?? []), ...(ips?.v6 ?? [])].join(',')}`;
    return [`${name}: ${endpoints.join(' ')}`];
  });
  const nodes = store.nodes.cells().flatMap(({ value }) => {
    return value === undefined ? [] : [`node ${value.node.name} ${value.node.topology?.zone}`];
  });
  return [...services, ...nodes];
}
