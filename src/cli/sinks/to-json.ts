import { defineSink } from '../command.ts';
import { checkNodeName, NODE_FLAGS } from '../flags/node.ts';

export const toJson = defineSink({
  word: 'to-json',
  summary: 'Print the state of this node as JSON, again at every change, as kpng-json does',
  description: [
    'One line of JSON for each service with its endpoints, all of them again at every change, for jq ' +
      'and scripts. Nothing is proxied. The program ends well when its reader goes away.',
    'The servers for metrics and health run only if their flags are given.',
  ],
  examples: [
    { line: 'local to-json | jq .', does: 'shows what a kpng server tells this node' },
    { line: 'file -i state.yaml to-json', does: 'shows what a state file means for this node' },
  ],
  flags: NODE_FLAGS,
  read: (values) => ({ nodeName: checkNodeName(values['node-name']) }),
  async start(_options, { log, stdout }) {
    const [{ JsonSink }, { streamWriter }] = await Promise.all([
      import('../../sinks/json.ts'),
      import('../../sinks/json-output.ts'),
    ]);
    const readerGone = Promise.withResolvers<void>();
    const write = streamWriter(stdout, () => {
      log.v(1, 'The reader of standard output has gone');
      readerGone.resolve();
    });
    return {
      sink: new JsonSink(write),
      ended: readerGone.promise,
      close: async () => {},
      destroy: async () => {},
    };
  },
});
