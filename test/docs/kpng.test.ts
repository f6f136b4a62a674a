import { clusterOfOne } from '../support/kpng-cluster.ts';
import { testPage } from '../support/run-page.ts';

testPage('docs/reference/kpng.md', clusterOfOne);
