import { defineGlobalSource } from '../command.ts';
import { API_FLAGS, apiOptions } from '../flags/api.ts';
import { backoffFrom } from '../flags/global.ts';

export const apiSource = defineGlobalSource({
  word: 'api',
  summary: 'Services, endpoints and nodes of the cluster, from the gRPC API of a kpng server',
  description: [
    'Watches the global API of a server started with `kpng ... to-api` and derives the local view of the node ' +
      'from it. While the server is unreachable, the last known state is served and the connection is ' +
      'retried with growing delays.',
    'TLS is used when one of the three TLS files is given.',
  ],
  examples: [
    {
      line: 'api --api unix:///k8s/proxy.sock to-local to-userspace',
      does: 'proxies beside a kpng server in the same pod',
    },
    {
      line: 'api --api kpng.example:12090 to-file --output state.yaml',
      does: 'saves the state of a kpng server',
    },
  ],
  flags: API_FLAGS,
  read: apiOptions,
  async start({ target, tls, maxMessageSize }, { globals }) {
    const [{ GlobalClient }, { readTls }] = await Promise.all([
      import('../../client/global-client.ts'),
      import('../../util/tls-files.ts'),
    ]);
    return new GlobalClient({
      target,
      tls: await readTls(tls),
      renewTls: () => readTls(tls),
      maxMessageSize,
      backoff: backoffFrom(globals),
    });
  },
});
