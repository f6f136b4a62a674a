import t from 'tap';
import xxhash from 'xxhash-wasm';
import { ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { Service } from '../../src/api/generated/localv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';

const hasher = await loadHasher();

const web = Service.fromPartial({
  namespace: 'demo',
  name: 'web',
  type: 'ClusterIP',
  ips: { clusterIPs: { v4: ['10.96.0.10'] }, externalIPs: {} },
  ports: [{ name: 'http', protocol: 1, port: 80, targetPort: 8080 }],
});

// A key that looks like an array index moves to the front of every JavaScript object, whatever the
// order of insertion; as text, "10" comes before "9".
t.test('map entries are hashed in text order, empty values included', async (t) => {
  const labels = { '9': 'x', '10': '', a: 'y' };
  const service = Service.fromPartial({ namespace: 'n', labels, healthCheckNodePort: 1 });
  const entries = ['42060a0231301200', '42060a0139120178', '42060a0161120179'].join('');
  const bytes = Buffer.from(`0a016e${entries}6801`, 'hex');
  const info = Buffer.concat([Buffer.from([0x12, bytes.length]), bytes]);
  const api = await xxhash();
  t.equal(hasher.service(service), api.h64Raw(info));
  t.strictSame(ServiceInfo.decode(info).service, service);
});

t.test('every field of a service is part of its hash', async (t) => {
  const base = hasher.service(web);
  const changes: Parameters<typeof Service.fromPartial>[0][] = [
    { namespace: 'x' },
    { type: 'NodePort' },
    { ips: { headless: true } },
    { mapIP: true },
    { ports: [] },
    { externalTrafficToLocal: true },
    { labels: { a: 'b' } },
    { annotations: { a: 'b' } },
    { ipFilters: [{ sourceRanges: ['10.0.0.0/8'] }] },
    { sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 0 } } },
    { internalTrafficToLocal: true },
    { healthCheckNodePort: 1 },
  ];
  const seen = new Set([base]);
  for (const change of changes) {
    const hash = hasher.service(Service.fromPartial({ ...web, ...change }));
    t.notOk(seen.has(hash), JSON.stringify(change));
    seen.add(hash);
  }
});
