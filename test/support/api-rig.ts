import type { Test } from 'tap';
import { parseListen } from '../../src/server/listen-address.ts';
import { startApiServer, type ApiServer, type ApiServerOptions } from '../../src/server/server.ts';
import { connectApi, type ApiClientOptions } from './api-client.ts';
import { emptyCluster, type Cluster } from './cluster.ts';

export interface ApiRigOptions extends Partial<Omit<ApiServerOptions, 'store' | 'listen'>> {
  /** Default: a free port of 127.0.0.1. */
  readonly listen?: string;
  readonly cluster?: Cluster;
  readonly client?: ApiClientOptions;
}

/** A server of a cluster's state and a bare client of it. Both end with the test. */
export async function startApiRig(t: Test, options: ApiRigOptions = {}) {
  const { listen, client, ...rest } = options;
  const cluster = options.cluster ?? (await emptyCluster());
  const server: ApiServer = await startApiServer({
    ...rest,
    store: cluster.store,
    listen: parseListen(listen ?? 'tcp://127.0.0.1:0'),
  });
  t.teardown(() => server.destroy());
  return { cluster, server, ...connectApi(t, server, client) };
}
