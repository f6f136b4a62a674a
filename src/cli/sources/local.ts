import { DEFAULT_API, parseTarget } from '../../client/target.ts';
import { KpngError } from '../../errors.ts';
import { defineSource } from '../command.ts';
import { backoffFrom } from '../flags/global.ts';
import { size, text } from '../flags/kinds.ts';
import { flag } from '../flags/table.ts';

const GROUP = 'Source: local';

export const localSource = defineSource({
  word: 'local',
  summary: 'The local view of this node, from the gRPC API of a kpng server',
  description: [
    'Watches a server started with `kpng ... to-api`. While the server cannot be reached the last ' +
      'state is kept and served; the connection is tried again for ever, with growing waits.',
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
  toLocalOptional: true,
  flags: {
    api: flag<string>({
      kind: text('target'),
      default: DEFAULT_API,
      help: 'The server: host:port, dns:///host:port, unix:path or unix:///absolute/path.',
      group: GROUP,
    }),
    'api-client-tls-crt': flag<string>({
      kind: text('path'),
      default: '',
      help: 'PEM file with the certificate to show to the server.',
      group: GROUP,
      aliases: ['tls-crt'],
    }),
    'api-client-tls-key': flag<string>({
      kind: text('path'),
      default: '',
      help: 'PEM file with the key of that certificate.',
      group: GROUP,
      aliases: ['tls-key'],
    }),
    'api-client-tls-ca': flag<string>({
      kind: text('path'),
      default: '',
      help: 'PEM file with the authorities that the server may be signed by, instead of the system’s.',
      group: GROUP,
      aliases: ['tls-ca'],
    }),
    'max-msg-size': flag<number>({
      kind: size(1024, 2 ** 31 - 1),
      default: 4 * 1024 * 1024,
      help: 'Largest message taken from the server.',
      group: GROUP,
    }),
  },
  read(values) {
    const { 'api-client-tls-crt': crt, 'api-client-tls-key': key } = values;
    if ((crt === '') !== (key === '')) {
      throw new KpngError(
        'KPNG_USAGE',
        '--api-client-tls-crt and --api-client-tls-key: one was given without the other',
      );
    }
    return {
      target: parseTarget(values.api),
      tls: { crt, key, ca: values['api-client-tls-ca'] },
      maxMessageSize: values['max-msg-size'],
    };
  },
  async start({ target, tls, maxMessageSize }, { nodeName, globals }) {
    const [{ KpngClient }, { readTls }] = await Promise.all([
      import('../../client/client.ts'),
      import('../../client/tls.ts'),
    ]);
    return new KpngClient({
      target,
      tls: await readTls(tls),
      nodeName,
      maxMessageSize,
      backoff: backoffFrom(globals),
    });
  },
});
