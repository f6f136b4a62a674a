import t from 'tap';
import { clientSource } from '../../../src/proxysocket/core/clients.ts';
import type { Traffic } from '../../../src/proxysocket/spec.ts';

const ENDPOINT = { address: '203.0.113.10', family: 4 } as const;

function source(
  keepsClients: 'external' | 'all' | undefined,
  traffic: Traffic,
  client: string,
  endpoint: Parameters<typeof clientSource>[2] = ENDPOINT,
): string | undefined {
  return clientSource({ keepsClients }, { traffic, client }, endpoint);
}

t.test('endpoints see the client where its traffic stays on this node', (t) => {
  const client = '198.51.100.7';
  t.equal(source('external', 'external', client), client);
  t.equal(source('all', 'internal', client), client);
  t.equal(source(undefined, 'external', client), undefined, 'not asked for');
  t.equal(source('external', 'internal', client), undefined, 'endpoints may be elsewhere');
  t.equal(source('all', 'cluster', client), undefined, 'so may these');
  t.end();
});

t.test('and a node address where answers would not come back', (t) => {
  const local = { address: '127.0.0.1', family: 4 } as const;
  t.equal(source('all', 'external', ENDPOINT.address), undefined, 'the client is the endpoint');
  t.equal(source('all', 'external', '127.0.0.1'), undefined, 'the client is this host');
  t.equal(source('all', 'external', '198.51.100.7', local), undefined, 'the endpoint is');
  t.equal(source('all', 'external', '2001:db8::7'), undefined, 'another family');
  t.equal(source('all', 'external', ''), undefined, 'the client has gone');
  const six = { address: '2001:db8::10', family: 6 } as const;
  t.equal(source('all', 'external', '2001:db8::7', six), '2001:db8::7');
  t.equal(source('all', 'external', 'fe80::7%eth9', six), undefined, 'a link-local client');
  t.end();
});
