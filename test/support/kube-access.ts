/** Servers that want to know who asks, and kubeconfig files for them. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { makeAuthority, type CertFiles } from './certs.ts';
import { service } from './fake-api/objects.ts';
import type { FakeApi } from './fake-api/server.ts';
import { startKubeRig, type KubeRig, type KubeRigOptions } from './kube-rig.ts';
import { until } from './until.ts';

/** A directory with what a kubeconfig names: the certificates of a server, and an authority that issues more. */
export interface Place {
  readonly certs: CertFiles;
  readonly tls: { readonly key: string; readonly cert: string; readonly ca: string };
  write(name: string, text: string): Promise<string>;
}

/** Ends with the test. */
export async function place(t: Test): Promise<Place> {
  const certs = await makeAuthority(t);
  const { key, crt } = await certs.issue('server');
  const directory = await mkdtemp(join(tmpdir(), 'kpng-kube-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return {
    certs,
    tls: {
      key: await readFile(key, 'utf8'),
      cert: await readFile(crt, 'utf8'),
      ca: await readFile(certs.ca, 'utf8'),
    },
    async write(name, text) {
      const path = join(directory, name);
      await writeFile(path, text);
      return path;
    },
  };
}

/** Parts of a kubeconfig. */
export interface Config {
  readonly cluster?: object;
  readonly user?: object;
}

/** Writes a kubeconfig for a port, in YAML as people write it, or rather JSON, which is YAML. */
export function config(here: Place, port: number, { cluster, user }: Config): Promise<string> {
  return here.write(
    'kubeconfig.yaml',
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'c', user: 'u' } }],
      clusters: [
        {
          name: 'c',
          cluster: {
            server: `https://127.0.0.1:${port}`,
            'certificate-authority': here.certs.ca,
            ...cluster,
          },
        },
      ],
      users: [{ name: 'u', user }],
    }),
  );
}

/** A port that no one uses, to write it down before the server starts. */
export async function port(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** A rig whose server speaks TLS and has one service. */
export async function secureRig(
  t: Test,
  here: Place,
  given: Config,
  options: KubeRigOptions = {},
): Promise<KubeRig> {
  const at = await port();
  return startKubeRig(t, {
    kubeconfig: await config(here, at, given),
    prepare: (api) => api.upsert('services', service('demo/web', '10.96.0.10')),
    ...options,
    api: { tls: here.tls, port: at, ...options.api },
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
