import t from 'tap';
import { LocalPolicyBook } from '../../src/cli/prepare.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import type { LocalChange } from '../../src/store/local-view.ts';
import { Service, type Endpoint } from '../../src/api/generated/localv1/api.ts';
import { scrapePage } from '../support/metrics-page.ts';

interface Described {
  readonly policy: Partial<Pick<Service, 'internalTrafficToLocal' | 'externalTrafficToLocal'>>;
  /** What its endpoints may be used for: i, e, both or nothing. */
  readonly endpoints: readonly string[];
}

function change(all: Record<string, Described>, ...changed: string[]): LocalChange {
  const entries = new Map(
    Object.entries(all).map(([key, { policy, endpoints }]) => {
      const service = Service.fromPartial({ name: key, ...policy });
      const list = endpoints.map((uses, n): [string, Endpoint] => {
        const scopes = { internal: uses.includes('i'), external: uses.includes('e') };
        return [String(n), { scopes } as Endpoint];
      });
      return [key, { key, service, endpoints: new Map(list) }];
    }),
  );
  const view = {
    size: entries.size,
    get: (key: string) => entries.get(key),
    entries: () => entries.values(),
  };
  return { view, changed: new Set(changed) };
}

const INTERNAL = { internalTrafficToLocal: true };
const EXTERNAL = { externalTrafficToLocal: true };

t.test('services whose policy leaves no endpoint are counted as they change', async (t) => {
  const book = new LocalPolicyBook();
  const first = {
    a: { policy: INTERNAL, endpoints: ['e'] },
    b: { policy: EXTERNAL, endpoints: [] },
    c: { policy: {}, endpoints: [] },
    d: { policy: { ...INTERNAL, ...EXTERNAL }, endpoints: ['i'] },
  };
  t.same(book.take(change(first, 'a', 'b', 'c', 'd')), { internal: 1, external: 2 });
  const second = { ...first, a: { policy: INTERNAL, endpoints: ['e', 'ie'] } };
  t.same(book.take(change(second, 'a')), { internal: 0, external: 2 });
  const { a, c, d } = second;
  t.same(book.take(change({ a, c, d }, 'b')), { internal: 0, external: 1 }, 'b is gone');
  t.same(book.take(change({ a, c, d })), { internal: 0, external: 1 });
});

t.test('they are on the metrics page under kube-proxy’s name', async (t) => {
  const metrics = createMetrics({ version: '0' });
  t.teardown(() => metrics.close());
  metrics.countNoLocalEndpoints({ internal: 3, external: 4 });
  const page = await scrapePage(metrics);
  const name = 'kubeproxy_sync_proxy_rules_no_local_endpoints_total';
  t.equal(page.value(name, { traffic_policy: 'internal' }), 3);
  t.equal(page.value(name, { traffic_policy: 'external' }), 4);
});
