import { defineSink } from '../command.ts';
import { NODE_FLAGS } from '../flags/backend.ts';

export const toJson = defineSink({
  word: 'to-json',
  summary: 'Print the state of this node as JSON at every change, as kpng-json does',
  description: [
    'Prints one line of JSON for each service with its endpoints, all of them at every change, for jq and ' +
      'scripts. Nothing is proxied. When the reader closes standard output, the program exits with 0.',
    'The servers for metrics and health run only if their flags are given.',
  ],
  examples: {
    'local to-json | jq .': 'shows what a kpng server sends to this node',
    'file -i state.yaml to-json': 'shows what a state file means for this node',
  },
  flags: NODE_FLAGS,
  async start(_options, { log, stdout }) {
    const [{ JsonSink }, { streamWriter }] = await Promise.all([
      import('../../sinks/json.ts'),
      import('../../sinks/json-output.ts'),
    ]);
    const readerGone = Promise.withResolvers<void>();
    const write = streamWriter(stdout, () => {
      log.v(1, 'Standard output closed by its reader; stopping');
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
