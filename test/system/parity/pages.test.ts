/** The pages that tests of clusters, monitoring and load balancers ask kube-proxy for. */
import t from 'tap';
import { lab } from '../support/lab.ts';
import { NODE } from '../support/network.ts';
import { PORTALS, startWith } from '../support/portals-under-test.ts';
import { pod, service } from '../support/state.ts';

for (const portal of PORTALS) {
  t.test(`${portal.name}: the pages of kube-proxy are where they always were`, async (t) => {
    const here = await lab(t);
    const program = startWith(t, here, portal);
    await program.serve(service([pod('pod-a')]));
    t.match(await program.page('http://127.0.0.1:10249/proxyMode'), /^200 userspace$/);
    t.match(await program.page('http://127.0.0.1:10249/healthz'), /^200 /);
    const metrics = await program.metrics();
    t.equal(metrics.value('kpng_userspace_service_ports'), 2);
    t.ok((metrics.value('kubeproxy_sync_proxy_rules_duration_seconds_count') ?? 0) >= 2);
    const url = `http://${NODE.v4}:10256/healthz`;
    const health = await here.network.inside('client', 'curl', ['-sS', url]);
    t.match(JSON.parse(health), { nodeEligible: true, lastUpdated: /^\d{4}-/ });
    t.match(
      await here.network
        .inside('client', 'curl', ['-sS', `http://${NODE.v4}:10249/metrics`])
        .catch(String),
      /Could ?n.t connect|Failed to connect|Connection refused/,
      'metrics are for the node itself',
    );
  });
}
