import { JsonSink, streamWriter } from '../../sinks/json.ts';
import { defineSink, type RunContext } from '../command.ts';
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
  async start(_options, context) {
    const { write, ended } = outputOf(context);
    return {
      sink: new JsonSink(write),
      ended,
      close: async () => {},
      destroy: async () => {},
    };
  },
});

/** Writes to standard output; `ended` resolves when its reader has closed it. */
export function outputOf({ stdout, log }: RunContext) {
  const readerGone = Promise.withResolvers<void>();
  const write = streamWriter(stdout, () => {
    log.v(1, 'Standard output closed by its reader; stopping');
    readerGone.resolve();
  });
  return { write, ended: readerGone.promise };
}
