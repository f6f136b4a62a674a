/**
 * A service item and a node as a state file spells them, after the JSON schema accepted them. Every
 * key may be missing or null unless the schema requires it.
 */
type Optional<T> = T | null | undefined;

export interface RawIPSet {
  readonly v4?: Optional<readonly string[]>;
  readonly v6?: Optional<readonly string[]>;
}

export interface RawPort {
  readonly name?: Optional<string>;
  readonly protocol?: Optional<'TCP' | 'UDP' | 'SCTP' | 1 | 2 | 3>;
  readonly port: number;
  readonly nodeport?: Optional<number>;
  readonly targetport?: Optional<number>;
  readonly targetportname?: Optional<string>;
}

export interface RawService {
  readonly namespace?: Optional<string>;
  readonly name: string;
  readonly type?: Optional<string>;
  readonly labels?: Optional<Readonly<Record<string, string>>>;
  readonly annotations?: Optional<Readonly<Record<string, string>>>;
  readonly ips?: Optional<{
    readonly clusterips?: Optional<RawIPSet>;
    readonly externalips?: Optional<RawIPSet>;
    readonly loadbalancerips?: Optional<RawIPSet>;
    readonly headless?: Optional<boolean>;
  }>;
  readonly ipfilters?: Optional<
    readonly {
      readonly targetips?: Optional<RawIPSet>;
      readonly sourceranges?: Optional<readonly string[]>;
    }[]
  >;
  readonly mapip?: Optional<boolean>;
  readonly ports?: Optional<readonly RawPort[]>;
  readonly externaltraffictolocal?: Optional<boolean>;
  readonly internaltraffictolocal?: Optional<boolean>;
  readonly sessionaffinity?: Optional<{
    readonly clientip?: Optional<{ readonly timeoutseconds?: Optional<number> }>;
  }>;
  readonly healthchecknodeport?: Optional<number>;
}

export interface RawTopology {
  readonly node?: Optional<string>;
  readonly zone?: Optional<string>;
}

export interface RawEndpoint {
  readonly podname?: Optional<string>;
  readonly endpoint?: Optional<{
    readonly hostname?: Optional<string>;
    readonly ips?: Optional<RawIPSet>;
    readonly portoverrides?: Optional<
      readonly { readonly name?: Optional<string>; readonly port: number }[]
    >;
  }>;
  readonly conditions?: Optional<{
    readonly ready?: Optional<boolean>;
    readonly serving?: Optional<boolean>;
    readonly terminating?: Optional<boolean>;
  }>;
  readonly topology?: Optional<RawTopology>;
  readonly hints?: Optional<{
    readonly zones?: Optional<readonly string[]>;
    readonly nodes?: Optional<readonly string[]>;
  }>;
  readonly namespace?: Optional<string>;
  readonly servicename?: Optional<string>;
}

export interface RawServiceItem {
  readonly service: RawService;
  readonly endpoints?: Optional<readonly RawEndpoint[]>;
}

export interface RawNode {
  readonly name: string;
  readonly labels?: Optional<Readonly<Record<string, string>>>;
  readonly annotations?: Optional<Readonly<Record<string, string>>>;
  readonly topology?: Optional<RawTopology>;
}

/** The whole file but for the service items, which are checked one by one. */
export interface RawFile {
  readonly nodes?: Optional<readonly RawNode[]>;
}
