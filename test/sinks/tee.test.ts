import t from 'tap';
import { teeSinks } from '../../src/sinks/tee.ts';
import type { LocalSink } from '../../src/store/local-view.ts';
import { TestView } from '../support/messages.ts';

/** A sink that notes what it gets, and fails on request. */
function sink(name: string, log: string[], error?: Error): LocalSink {
  return {
    async sync({ changed }) {
      log.push(`${name} ${[...changed].join()}`);
      if (error !== undefined) throw error;
    },
  };
}

t.test('every sink gets every change set, in order', async (t) => {
  const log: string[] = [];
  const tee = teeSinks(sink('a', log), sink('b', log));
  await tee.sync(new TestView().again('d/x'));
  await tee.sync(new TestView().again('d/y'));
  t.same(log, ['a d/x', 'b d/x', 'a d/y', 'b d/y']);
});

t.test('a failing sink does not stop the others, and is reported', async (t) => {
  const log: string[] = [];
  const tee = teeSinks(sink('a', log, new Error('first')), sink('b', log, new Error('second')));
  await t.rejects(tee.sync(new TestView().again('d/x')), { message: 'first' });
  t.same(log, ['a d/x', 'b d/x']);
});
