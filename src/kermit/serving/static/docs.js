// Swagger UI for the service's OpenAPI description; everything is loaded from this origin.

window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  presets: [window.SwaggerUIBundle.presets.apis],
});
