import t from 'tap';
import { Endpoint, Service } from '../../src/api/generated/localv1/api.ts';
import { itemJson } from '../../src/api/json.ts';

t.test('nothing set: only what Go always writes', async (t) => {
  const nothing = '{"Service":{"SessionAffinity":null},"Endpoints":null}';
  t.equal(itemJson(Service.fromPartial({}), []), nothing);
  t.equal(
    itemJson(Service.fromPartial({}), [Endpoint.fromPartial({ scopes: {} })]),
    '{"Service":{"SessionAffinity":null},"Endpoints":[{"Scopes":{}}]}',
  );
});

t.test('everything set: every key, in the order of the Go structs', async (t) => {
  const service = Service.fromPartial({
    namespace: 'n',
    name: 's',
    type: 'LoadBalancer',
    labels: { b: '2', a: '1' },
    annotations: { c: '3' },
    ips: {
      clusterIPs: { v6: ['fd00::9'] },
      externalIPs: { v4: ['198.51.100.7'] },
      loadBalancerIPs: { v4: ['203.0.113.9'] },
      headless: true,
    },
    ipFilters: [{ targetIPs: {}, sourceRanges: ['192.0.2.0/24'] }, {}],
    mapIP: true,
    ports: [
      { name: 'a', protocol: 3, port: 53, nodePort: 30053, targetPort: 1, targetPortName: 'dns' },
    ],
    externalTrafficToLocal: true,
    sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 10800 } },
    internalTrafficToLocal: true,
    healthCheckNodePort: 32100,
  });
  const endpoint = Endpoint.fromPartial({
    hostname: 'h',
    ips: { v4: ['10.0.0.1'], v6: ['fd00::1'] },
    local: true,
    portOverrides: [{ name: '', port: 5 }],
    scopes: { internal: true, external: true },
  });
  const line = itemJson(service, [endpoint, endpoint]);
  const one =
    '{"Hostname":"h","IPs":{"V4":["10.0.0.1"],"V6":["fd00::1"]},"Local":true,"PortOverrides":[{"Port":5}],"Scopes":{"Internal":true,"External":true}}';
  t.equal(
    line,
    '{"Service":{"Namespace":"n","Name":"s","Type":"LoadBalancer","Labels":{"a":"1","b":"2"},"Annotations":{"c":"3"},' +
      '"IPs":{"ClusterIPs":{"V6":["fd00::9"]},"ExternalIPs":{"V4":["198.51.100.7"]},"LoadBalancerIPs":{"V4":["203.0.113.9"]},"Headless":true},' +
      '"IPFilters":[{"TargetIPs":{},"SourceRanges":["192.0.2.0/24"]},{}],"MapIP":true,' +
      '"Ports":[{"Name":"a","Protocol":3,"Port":53,"NodePort":30053,"TargetPort":1,"TargetPortName":"dns"}],' +
      '"ExternalTrafficToLocal":true,"SessionAffinity":{"ClientIP":{"TimeoutSeconds":10800}},' +
      `"InternalTrafficToLocal":true,"HealthCheckNodePort":32100},"Endpoints":[${one},${one}]}`,
  );
});

t.test('text is escaped as Go does', async (t) => {
  const escaped = (name: string) => {
    const line = itemJson(Service.fromPartial({ name }), []);
    t.equal((JSON.parse(line) as { Service: { Name: string } }).Service.Name, name);
    return line.slice(
      '{"Service":{"Name":'.length,
      -',"SessionAffinity":null},"Endpoints":null}'.length,
    );
  };
  t.equal(escaped('<a> & b'), String.raw`"\u003ca\u003e \u0026 b"`);
  t.equal(escaped('\u2028\u2029'), String.raw`"\u2028\u2029"`);
  t.equal(escaped('"\\\n\r\t\u0001\u001f'), String.raw`"\"\\\n\r\t\u0001\u001f"`);
  t.equal(escaped('\\u003c'), String.raw`"\\u003c"`);
  t.equal(escaped('é€😀\u007f'), '"é€😀\u007f"');
});

t.test('keys of maps are escaped and sorted as text', async (t) => {
  const labels = JSON.parse('{"10":"x","9":"y","b":"","a<":"z","__proto__":"p"}') as object;
  const service = Service.fromPartial({});
  t.match(
    itemJson({ ...service, labels: labels as Record<string, string> }, []),
    String.raw`"Labels":{"10":"x","9":"y","__proto__":"p","a\u003c":"z","b":""}`,
  );
});
