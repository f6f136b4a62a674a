import t from 'tap';
import { bundledText, provideBundle, threadModule } from '../../src/util/bundle.ts';

t.test('without an executable around it, files are files', async (t) => {
  const beside = new URL('file:///somewhere/worker.js');
  t.equal(bundledText('package.json'), undefined);
  t.equal(threadModule('worker', beside), beside);
});

t.test('inside an executable, threads run modules that it has inside', async (t) => {
  provideBundle({ 'a.txt': 'text', worker: 'export const umlaut = "ü";' });
  t.teardown(() => provideBundle({}));
  t.equal(bundledText('a.txt'), 'text');
  t.equal(bundledText('toString'), undefined);
  const module = threadModule('worker', new URL('file:///somewhere/worker.js'));
  const { umlaut } = (await import(module.href)) as { umlaut: string };
  t.equal(umlaut, 'ü');
});
