import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Test } from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { kubeFailed, kubeListed, kubeWatching } from '../../src/kube/events.ts';
import { DEFAULT_KUBE_LIMITS, type KubeLimits } from '../../src/kube/limits.ts';
import { DEFAULT_NODE_LABELS, type Selection } from '../../src/kube/resource.ts';
import { openKubeSource, type KubeSourceOptions } from '../../src/kube/source.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { makeAuthority } from './certs.ts';
import { endpoint, node, service, slice } from './fake-api/objects.ts';
import { FakeApi, type FakeApiOptions } from './fake-api/server.ts';
import { FakeClock } from './fake-clock.ts';
import { shortDir } from './short-dir.ts';
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
  /** Makes a kubeconfig file for the server's URL. Default: no file, only the URL. */
  readonly kubeconfig?: (url: string) => Promise<string>;
  readonly source?: Partial<KubeSourceOptions>;
}

export type KubeRig = Awaited<ReturnType<typeof startKubeRig>>;

/** A fake API server and a source that watches it. Both end with the test. */
export async function startKubeRig(t: Test, options: KubeRigOptions = {}) {
  const api = new FakeApi(options.api ?? {});
  await api.start();
  options.prepare?.(api);
  const clock = new FakeClock();
  const store = new GlobalStore({ hasher: await loadHasher() });
  const failures = collect(t, kubeFailed);
  const lists = collect(t, kubeListed);
  const opened = collect(t, kubeWatching);
  const kubeconfig = (await options.kubeconfig?.(api.url)) ?? '';
  const source = await openKubeSource({
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
  t.teardown(async () => {
    stop.abort();
    await done;
    await api.stop();
  });
  return {
    api,
    store,
    /** Decides about waits and time limits. Their jitter is off: 1000 ms, 1600 ms, ... */
    clock,
    failures,
    lists,
    /** Waits until each resource is being watched and the state is complete. */
    watching: () => until(() => store.synced && opened.length >= 3 && api.watches().length === 3),
    /** Waits until the state, by `describeState`, is this. */
    settled: async (...lines: string[]): Promise<void> => {
      const wanted = lines.join('\n');
      const read = (): string => describeState(store).join('\n');
      await until(() => read() === wanted).catch(() => undefined);
      t.equal(read(), wanted);
    },
    /** Lets waits pass until a condition holds. */
    advanceUntil: async (condition: () => boolean, stepMs = 250): Promise<void> => {
      const end = performance.now() + 60_000;
      while (!condition()) {
        if (performance.now() > end) throw new Error(`still not so: ${condition.toString()}`);
        clock.advance(stepMs);
        await new Promise(setImmediate);
      }
    },
  };
}

/** A rig whose server has the state of `fill`, once that is being watched. */
export async function watchFilled(t: Test, options: KubeRigOptions = {}) {
  const rig = await startKubeRig(t, { prepare: fill, ...options });
  await rig.watching();
  return rig;
}

/** A state in short: `demo/web 10.96.0.10: 10.1.0.5@node-a` and `node node-a north`. */
export function describeState(store: GlobalStore): string[] {
  const services = store.services.keys().flatMap((key) => {
    const record = store.services.get(key);
    if (record?.service === undefined) return [];
    const { service } = record;
    const ips = service.ips?.clusterIPs;
    const endpoints = record.endpoints.map((info) => {
      const addresses = [...(info.endpoint?.ips?.v4 ?? []), ...(info.endpoint?.ips?.v6 ?? [])];
      const ready = info.conditions?.ready === false ? '!' : '';
      return `${ready}${addresses.join(',')}@${info.topology?.node}`;
    });
    const name = `${key} ${[...(ips?.v4 ?? []), ...(ips?.v6 ?? [])].join(',')}`;
    return [`${name}: ${endpoints.join(' ')}`];
  });
  const nodes = store.nodes.keys().flatMap((name) => {
    const node = store.nodes.get(name);
    return node === undefined ? [] : [`node ${name} ${node.topology?.zone}`];
  });
  return [...services, ...nodes];
}

/** What the API of a small cluster has, and what our source makes of it. */

/** After `fill`, as a rig's `settled` wants it. */
export const STATE = ['demo/web 10.96.0.10: 10.1.0.5@node-a', 'node node-a north'];

/** After `addApi`, too. */
export const MORE = ['demo/api 10.96.0.11: ', ...STATE];

/** A service with one endpoint, and the node that it is on. */
export function fill(api: FakeApi): void {
  api.upsert('nodes', node('node-a', 'north'));
  api.upsert('services', service('demo/web', '10.96.0.10'));
  api.upsert('endpointslices', slice('demo/web-x', [endpoint('10.1.0.5')]));
}

/** A further service. */
export function addApi(api: FakeApi): void {
  api.upsert('services', service('demo/api', '10.96.0.11'));
}

/** How often a resource was listed. */
export function lists(api: FakeApi, resource = 'services'): number {
  return api.requests.filter((seen) => seen.verb === 'list' && seen.resource === resource).length;
}

/** Servers that want to know who asks, and kubeconfig files for them. */

export type Place = Awaited<ReturnType<typeof place>>;

/**
 * A directory with what a kubeconfig names: the certificates of a server, and an authority that issues more. Ends with
 * the test.
 */
export async function place(t: Test) {
  const certs = await makeAuthority(t);
  const { key, crt } = await certs.issue('server');
  const directory = shortDir(t);
  return {
    certs,
    tls: {
      key: await readFile(key, 'utf8'),
      cert: await readFile(crt, 'utf8'),
      ca: await readFile(certs.ca, 'utf8'),
    },
    async write(name: string, text: string): Promise<string> {
      const path = join(directory, name);
      await writeFile(path, text);
      return path;
    },
  };
}

/** The token of a user, as far as one can read it. */
export function tokenOf(claims: object): string {
  return `x.${Buffer.from(JSON.stringify(claims)).toString('base64url')}.y`;
}

/** Parts of a kubeconfig. */
export interface Config {
  readonly cluster?: object;
  readonly user?: object | undefined;
}

/** Writes a kubeconfig for a server, in YAML as people write it, or rather JSON, which is YAML. */
export function config(here: Place, server: string, { cluster, user }: Config): Promise<string> {
  const files = { 'certificate-authority': here.certs.ca };
  const content = {
    'current-context': 'test',
    contexts: [{ name: 'test', context: { cluster: 'c', user: 'u' } }],
    clusters: [{ name: 'c', cluster: { server, ...files, ...cluster } }],
    users: [{ name: 'u', user }],
  };
  return here.write('kubeconfig.yaml', JSON.stringify(content));
}

/** A rig whose server speaks TLS and has one service, with a kubeconfig file. */
export function secureRig(
  t: Test,
  here: Place,
  given: Config,
  api: FakeApiOptions = {},
): Promise<KubeRig> {
  return startKubeRig(t, {
    kubeconfig: (url) => config(here, url, given),
    prepare: (fake) => fake.upsert('services', service('demo/web', '10.96.0.10')),
    api: { tls: here.tls, ...api },
  });
}

/** Cuts the watches, and waits until each resource is watched again, with the credentials that there are then. */
export async function cutAndWatch(
  rig: Pick<KubeRig, 'api' | 'failures' | 'advanceUntil'>,
): Promise<void> {
  const { api, failures, advanceUntil } = rig;
  const before = failures.length;
  api.cut();
  await until(() => failures.length === before + 3);
  await advanceUntil(() => api.watches().length === 3);
}

/** Who has asked, each once. */
export function users(api: FakeApi): string[] {
  return [...new Set(api.requests.map(({ user }) => user))];
}
