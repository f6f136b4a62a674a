/** An endpoint as a process that can be killed: settings `{name, address, ports}`, answer `{}`. */
import { Endpoint, type EndpointPorts } from '../../examples/support/endpoint.ts';
import { answer, endWithParent, settings } from '../support/worker.ts';

export interface EndpointSettings {
  readonly name: string;
  readonly address: string;
  readonly ports: EndpointPorts;
}

const { name, address, ports } = settings() as EndpointSettings;
await new Endpoint(name, address, ports).start();
endWithParent();
answer({});
