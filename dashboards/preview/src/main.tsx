/** One dashboard: `/?dashboard=run&theme=dark&from=…&to=…&var-run=…`. */
import '@fontsource/inter/400.css';
import '@fontsource/inter/500.css';
import '@fontsource/roboto-mono/400.css';
import 'uplot/dist/uPlot.min.css';
import { ThemeContext, createTheme } from '@grafana/data';
import { VizPanel, registerRuntimePanelPlugin, sceneGraph, type EmbeddedScene } from '@grafana/scenes';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import { buildScene } from './dashboard';
import { hostGrafana } from './grafana';
import { PANELS } from './panels';
import { PrometheusDatasource } from './prometheus';

/** How each panel fares; the camera waits for it, and fails on what is empty or broken. */
function report(scene: EmbeddedScene) {
  const panels = sceneGraph.findAllObjects(scene, (one) => one instanceof VizPanel) as VizPanel[];
  return panels.map((panel) => {
    const data: any = sceneGraph.getData(panel).state.data;
    const rows = (data?.series ?? []).reduce((sum: number, frame: any) => sum + frame.length, 0);
    return {
      key: panel.state.key,
      title: panel.state.title,
      type: panel.state.pluginId,
      state: data?.state,
      error: data?.error?.message ?? data?.errors?.[0]?.message ?? (panel.state as any)._pluginLoadError,
      series: data?.series?.length ?? 0,
      rows,
    };
  });
}

function Links({ dashboard }: { dashboard: any }) {
  return dashboard.links.map((link: any) => (
    <a key={link.title} href={link.url} style={{ marginLeft: 16, fontSize: 13 }}>
      {link.title}
    </a>
  ));
}

async function show() {
  const address = new URLSearchParams(location.search);
  const dashboard = await (await fetch(`/${address.get('dashboard') ?? 'fleet'}.json`)).json();
  const datasource = new PrometheusDatasource();
  hostGrafana(datasource);
  for (const [pluginId, plugin] of Object.entries(PANELS)) {
    registerRuntimePanelPlugin({ pluginId, plugin });
  }
  const scene = buildScene(dashboard, address);
  datasource.scene = scene;
  (window as any).report = () => report(scene);
  const theme = createTheme({ colors: { mode: address.get('theme') === 'light' ? 'light' : 'dark' } });
  createRoot(document.getElementById('root')!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <BrowserRouter>
        <div style={{ padding: 16, minHeight: '100vh', background: theme.colors.background.canvas }}>
          <div style={{ display: 'flex', alignItems: 'baseline', marginBottom: 8 }}>
            <h3 style={{ margin: 0, flexGrow: 1 }}>{dashboard.title}</h3>
            <Links dashboard={dashboard} />
          </div>
          <scene.Component model={scene} />
        </div>
      </BrowserRouter>
      <PortalContainer />
    </ThemeContext.Provider>
  );
}

show().catch((error) => {
  document.body.innerText = String(error.stack ?? error);
});
