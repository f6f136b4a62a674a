import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import t, { type Test } from 'tap';
import { openKubeApi } from '../../src/kube/api.ts';
import { KubeFailure } from '../../src/kube/failure.ts';
import { DEFAULT_KUBE_LIMITS } from '../../src/kube/limits.ts';
import { REVIEW_LIMITS, reviewsBy } from '../../src/kube/reviews.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { FakeClock } from '../support/fake-clock.ts';

async function setup(t: Test) {
  const api = await startFakeApi(t);
  api.reviews.tokens.set('prometheus-token', { username: 'prometheus', groups: ['monitoring'] });
  api.reviews.tokens.set('other-token', { username: 'other', groups: [] });
  api.reviews.allowed.set('monitoring', ['/metrics']);
  const limits = DEFAULT_KUBE_LIMITS;
  const clock = new FakeClock();
  const config = { kubeconfig: '', server: api.url, env: {}, userAgent: 'test' };
  const client = await openKubeApi({ ...config, limits, clock });
  t.teardown(() => client.close());
  return { api, review: reviewsBy(client), clock };
}

t.test('first the token is reviewed, then its user’s access', async (t) => {
  const { api, review } = await setup(t);
  t.equal(await review('prometheus-token', '/metrics'), 'allowed');
  t.same(api.reviews.asked, ['TokenReview', 'SubjectAccessReview']);
  t.equal(await review('prometheus-token', '/configz'), 'forbidden');
  t.equal(await review('other-token', '/metrics'), 'forbidden');
  t.equal(await review('nobody', '/metrics'), 'unauthenticated');
});

t.test('concurrent equal reviews are merged, and cached briefly', async (t) => {
  const { api, review, clock } = await setup(t);
  for (let n = 0; n < 3; n += 1) {
    const same = Array.from({ length: 20 }, () => review('prometheus-token', '/metrics'));
    t.same(new Set(await Promise.all(same)), new Set(['allowed']));
  }
  await review('nobody', '/metrics');
  await review('nobody', '/metrics');
  t.equal(api.reviews.asked.length, 3);
  api.reviews.tokens.delete('prometheus-token');
  clock.advance(REVIEW_LIMITS.rememberMs - 1);
  t.equal(await review('prometheus-token', '/metrics'), 'allowed');
  clock.advance(1);
  t.equal(await review('prometheus-token', '/metrics'), 'unauthenticated');
});

t.test('any failure denies access and is not cached', async (t) => {
  const { api, review } = await setup(t);
  await api.stop();
  await t.rejects(review('prometheus-token', '/metrics'), /ECONNREFUSED/);
  await api.start();
  t.equal(await review('prometheus-token', '/metrics'), 'allowed');
});

/** Reviews by a server that gives this answer. */
function answering(answer: () => Promise<string>) {
  const counter = { asked: 0 };
  const get = async (): Promise<IncomingMessage> => {
    counter.asked += 1;
    return Readable.from([Buffer.from(await answer())]) as IncomingMessage;
  };
  return { counter, review: reviewsBy({ clock: new FakeClock(), get }) };
}

t.test('concurrent reviews are limited', async (t) => {
  const { promise, reject } = Promise.withResolvers<string>();
  const { counter, review } = answering(() => promise);
  const asking = Array.from({ length: REVIEW_LIMITS.maxPending }, (_, n) =>
    review(`token-${n}`, '/metrics'),
  );
  const ended = Promise.allSettled(asking);
  await t.rejects(review('one-more', '/metrics'), /too many clients/);
  reject(new KubeFailure('server', 'not now'));
  await ended;
  const long = 'x'.repeat(REVIEW_LIMITS.maxTokenChars + 1);
  t.equal(await review(long, '/metrics'), 'unauthenticated', 'no one is asked about it');
  t.equal(counter.asked, REVIEW_LIMITS.maxPending);
});

t.test('of many reviews the latest are cached', async (t) => {
  let body = '{"status":{"authenticated":false}}';
  const { counter, review } = answering(async () => body);
  for (let n = 0; n <= REVIEW_LIMITS.maxRemembered; n += 1) await review(`t${n}`, '/');
  await review('t1', '/');
  t.equal(counter.asked, REVIEW_LIMITS.maxRemembered + 1);
  body = '<html>';
  // It was evicted.
  await t.rejects(review('t0', '/'), /response is not JSON/);
});
