#!/usr/bin/env node
// The proxy of a Windows node, as kube-proxy's and kpng's command lines name it.
import { start } from './start.js';

await start(['local', 'to-winuserspace']);
