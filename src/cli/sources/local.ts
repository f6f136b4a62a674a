import { defineSource } from '../command.ts';
import { API_FLAGS, apiOptions } from '../flags/api.ts';
import { backoffFrom } from '../flags/global.ts';

export const localSource = defineSource({
  word: 'local',
  summary: 'The local view of this node, from the gRPC API of a kpng server',
  description: [
    'Watches a server started with `kpng ... to-api`. While the server is unreachable, the last known state ' +
      'is served and the connection is retried with growing delays.',
    'TLS is used when one of the three TLS files is given.',
  ],
  examples: [
    {
      line: 'local --api unix:///k8s/proxy.sock to-userspace',
      does: 'proxies beside a kpng server in the same pod',
    },
    {
      line: 'local to-json | jq .Service.Name',
      does: 'prints the names of the services of this node',
    },
  ],
  flags: API_FLAGS,
  read: apiOptions,
  async start({ target, tls, maxMessageSize }, { nodeName, globals }) {
    const [{ KpngClient }, { readTls }] = await Promise.all([
      import('../../client/client.ts'),
      import('../../util/tls-files.ts'),
    ]);
    return new KpngClient({
      target,
      tls: await readTls(tls),
      renewTls: () => readTls(tls),
      nodeName,
      maxMessageSize,
      backoff: backoffFrom(globals),
    });
  },
});
