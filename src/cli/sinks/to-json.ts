import { JsonSink, streamWriter } from '../../sinks/json.ts';
import { defineSink, type RunContext } from '../command.ts';
import { NODE_FLAGS } from '../flags/backend.ts';
import { checkedText, duration, size } from '../flags/kinds.ts';
import { flag, group } from '../flags/table.ts';

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

export const toCallout = defineSink({
  word: 'to-callout',
  summary: 'Run a program at every change, with the state as JSON on its standard input',
  description: [
    'The program gets one line of JSON for each service with its endpoints, as to-json prints them, all of ' +
      'them at every change. It runs without arguments and without a shell, one run at a time; changes that ' +
      'arrive meanwhile are merged into the next run. Its output is printed, followed by an empty line.',
    'A run that exits with a code other than 0, takes too long or cannot be started is logged with the end of ' +
      'its standard error, counted, and retried with growing delays.',
  ],
  examples: {
    'local to-callout --callout ./apply-state.sh': 'runs a script at every change of a kpng server',
    'file -i state.yaml to-callout --callout jq':
      'shows what a state file means for this node, in colour',
  },
  flags: {
    ...NODE_FLAGS,
    ...group('Callout', {
      callout: flag(
        checkedText('program', (given) => {
          if (given === '' || given.includes('\0')) {
            throw new Error('expected the path of a program, or a name on the PATH');
          }
        }),
        '/bin/cat',
        {
          help: 'The program: a path, or a name on the PATH. No arguments can be given.',
          env: 'CALLOUT',
        },
      ),
      'callout-timeout': flag(duration(), 60_000, {
        help: 'Time limit of a run, which then gets SIGTERM and two seconds later SIGKILL. 0: no limit.',
      }),
      'callout-max-output': flag(size(0), 64 * 1024 * 1024, {
        help: 'Maximum output of a run, which is kept in memory until the run has succeeded.',
      }),
    }),
  },
  async start({ callout, calloutTimeout, calloutMaxOutput }, context) {
    const { CalloutSink } = await import('../../sinks/callout.ts');
    const { write, ended } = outputOf(context);
    const sink = new CalloutSink({
      program: callout,
      timeoutMs: calloutTimeout,
      maxOutput: calloutMaxOutput,
      write,
    });
    return { sink, ended, close: async () => {}, destroy: () => sink.destroy() };
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
